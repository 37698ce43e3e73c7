"""The environment of a rank: a known base, the plan's variables, and where the agent put things."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import NamedTuple

from muster.defaults import RANK_HOOKS

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NODE_MARK = "MUSTER_NODE_MARK"

# What a rank needs to be somebody, and to reach the world through this site's proxies.
_IDENTITY = ("HOME", "USER", "LOGNAME", "SHELL", "TZ")
_SITE = (
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
)


class RankPaths(NamedTuple):
    """Where the agent put what a rank needs to find."""

    python_bin: str
    """Folder that has `python`."""
    runtime: str
    tmp: str
    streams: str
    uploads: str
    checkpoints: str
    stop_file: str
    mark: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    resume: str | None = None
    compiled: str | None = None
    """Where torch.compile keeps what it made, for later runs too; it would look in the rank's own TMPDIR."""


def rank_environment(
    rank: int, planned: Mapping[str, str], user: Mapping[str, str], agent: Mapping[str, str], paths: RankPaths
) -> dict[str, str]:
    """The whole environment of one rank; `agent` is the agent's own, of which little is kept."""
    env = base(agent, paths)
    given = {**user, **planned}
    env.update(given)
    env["PYTHONPATH"] = _join(paths.runtime, given.get("PYTHONPATH", ""))
    env.update(_muster_variables(rank, paths))
    return env


def base(agent: Mapping[str, str], paths: RankPaths) -> dict[str, str]:
    env = {name: agent[name] for name in (*_IDENTITY, *_SITE) if agent.get(name)}
    env["LANG"] = "C.UTF-8"
    env["PATH"] = _join(paths.python_bin, SYSTEM_PATH)
    env["TMPDIR"] = paths.tmp
    env["MUSTER_HOOKS"] = ",".join(RANK_HOOKS)
    if paths.compiled:
        env["TORCHINDUCTOR_CACHE_DIR"] = paths.compiled
    return env


def _muster_variables(rank: int, paths: RankPaths) -> dict[str, str]:
    env = {
        NODE_MARK: paths.mark,
        "MUSTER_EVENTS_FILE": str(PurePath(paths.streams) / "events" / f"rank_{rank}.jsonl"),
        "MUSTER_UPLOADS_DIR": paths.uploads,
        "MUSTER_STOP_FILE": paths.stop_file,
        "MUSTER_CHECKPOINT_DIR": paths.checkpoints,
    }
    if paths.resume:
        env["MUSTER_RESUME_DIR"] = paths.resume
    env.update({f"MUSTER_INPUT_{name}": value for name, value in paths.inputs.items()})
    env.update({f"MUSTER_OUTPUT_{name}": value for name, value in paths.outputs.items()})
    return env


def _join(first: str, rest: str) -> str:
    return f"{first}:{rest}" if rest else first
