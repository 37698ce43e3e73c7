"""From a prepared attempt to the container that its ranks start in."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from muster.agent import devices
from muster.agent.attempt import Attempt, PreparedAttempt
from muster.agent.run.records import LaunchContainer
from muster.agent.run.runtime_copy import keeper_folder
from muster.agent.run.variables import NODE_MARK
from muster.agent.services import NodeServices
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
from muster.wire.node.plan import Needs

_PYTHON = '#!/bin/sh\nexec python3 "$@"\n'
_SOURCES = 200


def look(used: Used, needs: Needs, order: Order, paths: AttemptPaths) -> Facts:
    """Notices about the image; raises Failure where the job is certain to fail in it."""
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


def rank_environment(used: Used, paths: AttemptPaths, made: dict[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """A rank's whole environment: the image's own, extended by what the rank would have without an image."""
    image = dict(used.contents.env)
    env = {**image, "HOME": str(paths.home), **made}
    if "PATH" not in given:
        env["PATH"] = f"{image.get('PATH', '')}:{paths.root / 'bin'}".lstrip(":")
    if image.get("PYTHONPATH"):
        env["PYTHONPATH"] = f"{made['PYTHONPATH']}:{image['PYTHONPATH']}"
    return env


def describe(used: Used, attempt: Attempt, services: NodeServices, hostname: str) -> LaunchContainer:
    """The description for the keeper on the node; creates what the container needs."""
    order, prepared, paths = attempt.order, attempt.prepared, attempt.paths
    assert prepared is not None and order.plan is not None
    make_folders(paths)
    name = f"muster-{order.run}-{order.attempt}-{services.mark[:8]}"
    runtime = services.runtime.parent
    mounts = [*attempt_mounts(prepared, paths), Mount(str(runtime), str(runtime))]
    placed = AttemptContainer(name, services.mark, order.run, order.attempt, str(paths.work), mounts, hostname)
    copy = keeper_folder(services.runtime)
    inside = ["python3", "-I", "-S", str(copy / "muster/agent/run/container/inside.py"), str(copy), str(paths.root)]
    container, host = used.container, _host(used, bool(order.plan.gpus))
    command = run_command(used.engine, used.image, placed, host, container.shm_bytes, container.args, inside)
    has_state = used.engine.kind != APPTAINER
    return {
        "kind": "container",
        "command": command,
        "inspect": inspect_command(used.engine, name) if has_state else [],
        "remove": remove_command(used.engine, name) if has_state else [],
        "env": {**services.environ, NODE_MARK: services.mark},
        "ranks": [rank.rank for rank in order.plan.ranks],
        "root": str(paths.root),
        "journal": str(paths.journal),
    }


def make_folders(paths: AttemptPaths) -> None:
    """Create what only ranks in a container or a sandbox need."""
    for folder in (*own_folders(paths), paths.inputs):
        folder.mkdir(exist_ok=True)
    programs = paths.root / "bin"
    programs.mkdir(exist_ok=True)
    # Many images have only python3, and commands say python.
    (programs / "python").write_text(_PYTHON)
    (programs / "python").chmod(0o755)


def own_folders(paths: AttemptPaths) -> list[Path]:
    """Folders of an attempt that its ranks write to."""
    streams = (paths.streams / "user_logs", paths.streams / "events")
    mpi = [paths.mpi] if paths.mpi.exists() else []
    return [
        paths.work, paths.tmp, paths.home, paths.added, paths.inside, paths.uploads, paths.checkpoints, paths.out,
        *streams, *mpi,
    ]  # fmt: skip


def attempt_mounts(prepared: PreparedAttempt, paths: AttemptPaths) -> list[Mount]:
    """What ranks see of their attempt: never its orders and records, which the agent trusts and which contain grants.

    Each folder is a mount of its own, so that none can be replaced by a link that leads the agent elsewhere.
    """
    mounts = [Mount(str(folder), str(folder), True) for folder in own_folders(paths)]
    read = (paths.launch, paths.inputs, paths.resume, paths.mounts, paths.root / "bin")
    optional = (paths.resume, paths.mounts)
    mounts += [Mount(str(path), str(path)) for path in read if path not in optional or path.exists()]
    mounts += _mounts_elsewhere(prepared.mounts, paths.root, writable=False)
    mounts += _mounts_elsewhere(prepared.inputs, paths.root, writable=False)
    mounts += _mounts_elsewhere(prepared.outputs, paths.root, writable=True)
    if prepared.tmp != str(paths.tmp):
        mounts.append(Mount(str(paths.tmp), prepared.tmp, True))
    return list(dict.fromkeys(mounts))


def _mounts_elsewhere(values: Mapping[str, str], root: Path, *, writable: bool) -> list[Mount]:
    """Folders and files outside the attempt's own folder, including targets of links in it."""
    mounts = []
    for value in values.values():
        if not value.startswith("/") or not os.path.exists(value):  # noqa: PTH110
            continue
        real = os.path.realpath(value)
        if not Path(real).is_relative_to(root.resolve()):
            mounts.append(Mount(real, real, writable))
            if value != real and not Path(value).is_relative_to(root):
                mounts.append(Mount(real, value, writable))
    return mounts


def _host(used: Used, gpus: bool) -> Host:
    folder = Path("/dev/infiniband")
    rdma = sorted(str(path) for path in folder.iterdir()) if folder.is_dir() else []
    unlimited = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] == resource.RLIM_INFINITY
    may_lock = unlimited or not used.engine.rootless
    return Host(os.getuid(), os.getgid(), gpus, rdma, may_lock, used.extra)


def _mentions(folder: Path, word: bytes) -> bool:
    """Whether a Python file of the job names a module."""
    sources = islice(sorted(folder.rglob("*.py")), _SOURCES)
    return any(word in path.read_bytes() for path in sources if path.is_file())
