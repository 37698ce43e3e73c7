"""Finds a node's container engine, and runs its commands. Called in worker threads."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from muster.environments.failures import Failure
from muster.environments.images import rootless
from muster.environments.images.command import APPTAINER, DOCKER, KINDS, PODMAN, Engine, list_command, remove_command
from muster.host import processes
from muster.host.children import Abandoned, end_group, spawning, start

log = logging.getLogger(__name__)

PREFERENCE = "MUSTER_CONTAINER_ENGINE"
RUN_ARGS = "MUSTER_CONTAINER_ARGS"
BUILD_ARGS = "MUSTER_CONTAINER_BUILD_ARGS"
_LOOK_S = 0.05
_ASK_S = 60.0
_known: dict[tuple[str, ...], Engine] = {}


def find(environ: Mapping[str, str]) -> Engine:
    """The engine to use; raises Failure if none works."""
    preferred = environ.get(PREFERENCE, "")
    if preferred and preferred not in KINDS:
        raise Failure(
            "environment", f"{PREFERENCE} is {preferred!r}; known are {', '.join(KINDS)}", "Correct it on the node."
        )
    key = (preferred, environ.get("PATH", ""), environ.get("DOCKER_HOST", ""))
    if key not in _known:
        _known[key] = _look(preferred, environ)
    return _known[key]


def _look(preferred: str, environ: Mapping[str, str]) -> Engine:
    troubles, steps = [], []
    path = environ.get("PATH")
    for kind in [preferred] if preferred else KINDS:
        program = shutil.which(kind, path=path)
        if program is None and kind == APPTAINER:
            program = shutil.which("singularity", path=path)
        if program is None:
            troubles.append(f"{kind} is not installed")
            continue
        engine = Engine(kind, program, rootless=kind == PODMAN and os.getuid() != 0)
        trouble = _trouble(engine, environ)
        if trouble is None:
            return engine
        troubles.append(f"{kind}: {trouble.what}")
        steps += [trouble.next] if trouble.next else []
    general = f"Install podman, docker or apptainer there, and let this user use it; {PREFERENCE} chooses one."
    raise Failure(
        "environment", f"no container engine works on this node ({'; '.join(troubles)})", " ".join(steps) or general
    )


def _trouble(engine: Engine, environ: Mapping[str, str]) -> rootless.Trouble | None:
    """Why an installed engine cannot be used, such as docker's command without its daemon."""
    words = ["version", "--format", "{{.Server.Version}}"] if engine.kind == DOCKER else ["--version"]
    done = ask([engine.program, *(rootless.ASK if engine.rootless else words)], environ)
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    if engine.rootless:
        user = environ.get("USER") or str(os.getuid())
        return rootless.read(user, done.returncode, done.stdout.decode(), lines)
    if done.returncode != 0:
        return rootless.Trouble(lines[-1] if lines else f"it ended with code {done.returncode}")
    if engine.kind != DOCKER:
        return None
    return rootless.of_docker(
        ask([engine.program, "info", "--format", "{{.SecurityOptions}}"], environ).stdout.decode()
    )


def ask(command: Sequence[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    """Run a command that answers quickly."""
    try:
        # The lock keeps the agent from taking the child for an orphan.
        with spawning:
            _collect()
            return subprocess.run(
                list(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S, env=dict(environ), cwd="/"
            )
    except subprocess.TimeoutExpired:
        # The code of timeout(1): the engine itself uses 127 when the image lacks a program.
        return subprocess.CompletedProcess(list(command), 124, b"", f"no answer within {_ASK_S:g} s".encode())
    except OSError as error:
        return subprocess.CompletedProcess(list(command), 125, b"", str(error).encode())


def _collect() -> None:
    """Reap the dead children that podman left to this process: one for each container, which nobody waits for."""
    for process in processes.table().values():
        if process.parent == os.getpid() and process.dead and processes.name(process.pid) == "conmon":
            os.waitpid(process.pid, os.WNOHANG)


def perform(
    command: Sequence[str],
    environ: Mapping[str, str],
    out: IO[bytes],
    unwanted: threading.Event,
    *,
    watched: bool = False,
) -> int:
    """Run a command that may take minutes; returns its exit code. Ended when it is no longer needed (Abandoned).

    With `watched` it has an open standard input, which closes with this process.
    """
    stdin = subprocess.PIPE if watched else subprocess.DEVNULL
    child = start(command, environment=environ, stdin=stdin, stdout=out, stderr=out)
    try:
        while True:
            try:
                return child.wait(_LOOK_S)
            except subprocess.TimeoutExpired:
                if unwanted.is_set():
                    raise Abandoned("nobody wants the image any more") from None
    finally:
        end_group(child)


def extra(environ: Mapping[str, str], name: str = RUN_ARGS) -> tuple[str, ...]:
    return tuple(shlex.split(environ.get(name, "")))


def sweep(
    mark: str, environ: Mapping[str, str], report: Callable[[str], None], key: tuple[str, int] | None = None
) -> None:
    """Remove the containers that an earlier agent of this node left, or those of one attempt."""
    for kind in (PODMAN, DOCKER):
        program = shutil.which(kind, path=environ.get("PATH"))
        if program is None:
            continue
        engine = Engine(kind, program)
        listed = ask(list_command(engine, mark, key), environ)
        found = listed.stdout.decode().split() if listed.returncode == 0 else []
        if found:
            ask(remove_command(engine, *found), environ)
            report(f"removed containers that were left: {', '.join(name[:12] for name in found)}")
