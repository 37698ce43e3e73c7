"""The environment of a rank: a known base, the plan's variables, and where the agent put things."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import NamedTuple

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


class Places(NamedTuple):
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
    rank: int, planned: Mapping[str, str], user: Mapping[str, str], agent: Mapping[str, str], places: Places
) -> dict[str, str]:
    """The whole environment of one rank; `agent` is the agent's own, of which little is kept."""
    env = base(agent, places)
    given = {**user, **planned}
    env.update(given)
    env["PYTHONPATH"] = _join(places.runtime, given.get("PYTHONPATH", ""))
    env.update(_told(rank, places))
    return env


def base(agent: Mapping[str, str], places: Places) -> dict[str, str]:
    env = {name: agent[name] for name in (*_IDENTITY, *_SITE) if agent.get(name)}
    env["LANG"] = "C.UTF-8"
    env["PATH"] = _join(places.python_bin, SYSTEM_PATH)
    env["TMPDIR"] = places.tmp
    if places.compiled:
        env["TORCHINDUCTOR_CACHE_DIR"] = places.compiled
    return env


def _told(rank: int, places: Places) -> dict[str, str]:
    told = {
        NODE_MARK: places.mark,
        "MUSTER_EVENTS_FILE": str(PurePath(places.streams) / "events" / f"rank_{rank}.jsonl"),
        "MUSTER_UPLOADS_DIR": places.uploads,
        "MUSTER_STOP_FILE": places.stop_file,
        "MUSTER_CHECKPOINT_DIR": places.checkpoints,
    }
    if places.resume:
        told["MUSTER_RESUME_DIR"] = places.resume
    told.update({f"MUSTER_INPUT_{name}": value for name, value in places.inputs.items()})
    told.update({f"MUSTER_OUTPUT_{name}": value for name, value in places.outputs.items()})
    return told


def _join(first: str, rest: str) -> str:
    return f"{first}:{rest}" if rest else first
