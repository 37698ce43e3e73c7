"""From a prepared attempt to the container that its ranks start in."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from pathlib import Path

from muster.agent import devices
from muster.agent.run.records import LaunchContainer
from muster.agent.run.variables import NODE_MARK
from muster.environments.caller import Used
from muster.environments.images import probe, rootless
from muster.environments.images.command import (
    APPTAINER,
    AttemptContainer,
    Host,
    Mount,
    inspect_command,
    remove_command,
    run_command,
)
from muster.paths import AttemptPaths
from muster.wire.node.agents import Facts, Order
from muster.wire.node.plan import Needs, NodePlan

_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "TZ")
_PYTHON = '#!/bin/sh\nexec python3 "$@"\n'
_SOURCES = 200


def look(used: Used, needs: Needs, order: Order, paths: AttemptPaths) -> Facts:
    """What is worth telling of the image; Failure where the job is certain to fail in it."""
    contents = used.contents
    probe.check(
        used.container.label,
        contents,
        required=needs.required,
        programs=needs.programs,
        shell=needs.shell,
        mpi=order.mpi,
        deepspeed=order.mpi and _mentions(paths.work, b"deepspeed"),
    )
    absent = [name for name in needs.modules if name not in contents.modules and name in ("torch", "tensorflow")]
    notices = tuple(
        f"the image {used.container.label} has no {name}; a script that imports it fails" for name in absent
    )
    if used.engine.rootless:
        ignored = rootless.left_out(used.container.args, Path("/sys/fs/cgroup/cgroup.controllers").exists())
        notices += (ignored,) if ignored else ()
    versions = {name: contents.modules[name] for name in needs.modules if contents.modules.get(name)}
    return Facts(notices, versions, devices.gather(Path("/")) if needs.devices else None)


def base_environment(used: Used, paths: AttemptPaths, agent_env: Mapping[str, str]) -> dict[str, str]:
    """What of the node's own variables makes sense in an image."""
    home = paths.root / "home"
    names = {name: agent_env[name] for name in ("USER", "LOGNAME") if agent_env.get(name)}
    proxies = {name: agent_env[name] for name in _PROXIES if agent_env.get(name)}
    return {"HOME": str(home), **names, **proxies}


def rank_environment(used: Used, paths: AttemptPaths, made: dict[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """A rank's whole environment: the image's own, and on it what the rank would have without one."""
    image = dict(used.contents.env)
    env = {**image, **made}
    if "PATH" not in given:
        env["PATH"] = f"{image.get('PATH', '')}:{paths.root / 'bin'}".lstrip(":")
    if image.get("PYTHONPATH"):
        env["PYTHONPATH"] = f"{made['PYTHONPATH']}:{image['PYTHONPATH']}"
    return env


def describe(
    used: Used,
    order: Order,
    node: NodePlan,
    paths: AttemptPaths,
    runtime: Path,
    mark: str,
    agent_env: Mapping[str, str],
    folders: tuple[Mapping[str, str], Mapping[str, str], str],
    hostname: str = "",
) -> LaunchContainer:
    """What the keeper outside reads; `folders` are inputs, outputs and TMPDIR. Makes what the container needs."""
    _make(paths)
    inputs, outputs, tmp = folders
    name = f"muster-{order.run}-{order.attempt}-{mark[:8]}"
    mounts = [Mount(str(paths.root), str(paths.root), True), Mount(str(runtime.parent), str(runtime.parent))]
    mounts += _outside(inputs, paths.root, writable=False) + _outside(outputs, paths.root, writable=True)
    if tmp != str(paths.tmp):
        mounts.append(Mount(str(paths.tmp), tmp, True))
    attempt = AttemptContainer(
        name, mark, order.run, order.attempt, str(paths.work), list(dict.fromkeys(mounts)), hostname
    )
    copy = library(runtime)
    inside = ["python3", "-I", "-S", str(copy / "muster/agent/run/container/inside.py"), str(copy), str(paths.root)]
    container = used.container
    command = run_command(
        used.engine, used.image, attempt, _host(used, bool(node.gpus)), container.shm_bytes, container.args, inside
    )
    has_state = used.engine.kind != APPTAINER
    return {
        "command": command,
        "inspect": inspect_command(used.engine, name) if has_state else [],
        "remove": remove_command(used.engine, name) if has_state else [],
        "env": {**agent_env, NODE_MARK: mark},
        "ranks": [rank.rank for rank in node.ranks],
        "root": str(paths.root),
        "journal": str(paths.journal),
    }


def library(runtime: Path) -> Path:
    """The copy of Muster from which its own programs run in a container."""
    return runtime.with_name(f"{runtime.name}-keeper")


def _make(paths: AttemptPaths) -> None:
    (paths.root / "home").mkdir(exist_ok=True)
    programs = paths.root / "bin"
    programs.mkdir(exist_ok=True)
    # Many images have python3 alone, and commands say python.
    (programs / "python").write_text(_PYTHON)
    (programs / "python").chmod(0o755)


def _outside(values: Mapping[str, str], root: Path, *, writable: bool) -> list[Mount]:
    """Folders and files that lie outside the attempt's own folder, also where a link in it leads there."""
    mounts = []
    for value in values.values():
        if not value.startswith("/") or not os.path.exists(value):  # noqa: PTH110
            continue
        real = os.path.realpath(value)
        if not _is_below(real, root.resolve()):
            mounts.append(Mount(real, real, writable))
            if value != real and not _is_below(value, root):
                mounts.append(Mount(real, value, writable))
    return mounts


def _is_below(path: str, root: Path) -> bool:
    return Path(path).is_relative_to(root)


def _host(used: Used, gpus: bool) -> Host:
    folder = Path("/dev/infiniband")
    rdma = sorted(str(path) for path in folder.iterdir()) if folder.is_dir() else []
    unlimited = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] == resource.RLIM_INFINITY
    may_lock = unlimited or not used.engine.rootless
    return Host(os.getuid(), os.getgid(), gpus, rdma, may_lock, used.extra)


def _mentions(folder: Path, word: bytes) -> bool:
    """Whether a Python file of the job names a module."""
    for number, path in enumerate(sorted(folder.rglob("*.py"))):
        if number >= _SOURCES:
            return False
        if path.is_file() and word in path.read_bytes():
            return True
    return False
