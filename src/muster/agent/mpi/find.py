"""Which MPI a job on this node would use: its mpirun, and the library that its ranks would load."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from muster.agent.environ import SYSTEM_PATH
from muster.agent.gpus import spawning
from muster.launch.mpi import INSTALL, Kind, recognise

_PATIENCE_S = 60.0

# Asks without starting MPI: mpi4py knows its library, and Horovod's carries its library's name.
_PROBE = r"""
import glob, importlib.util, json, os, re, sys
found = {"watch": [path for path in sys.path if os.path.isdir(path)]}
if importlib.util.find_spec("mpi4py"):
    import mpi4py
    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    try:
        from mpi4py import MPI
        found.update(by="mpi4py", text=MPI.Get_library_version())
    except Exception as error:
        found.update(by="mpi4py", error=str(error))
elif importlib.util.find_spec("horovod"):
    folder = os.path.dirname(importlib.util.find_spec("horovod").origin)
    for path in glob.glob(os.path.join(folder, "*", "mpi_lib*.so")):
        with open(path, "rb") as file:
            named = re.search(rb"libmpi\.so\.(\d+)", file.read())
        if named:
            found.update(by="horovod", text="MPICH Version: 0" if named[1] == b"12" else "Open MPI v0")
print(json.dumps(found))
"""


class NoMpi(Exception):
    """No MPI that can run the job, and what to do about it."""

    def __init__(self, message: str, next: str) -> None:
        super().__init__(message)
        self.next = next


class Found(NamedTuple):
    program: str
    kind: Kind


class _Known(NamedTuple):
    found: Found
    watched: dict[str, int]


_known: dict[tuple[str, ...], _Known] = {}


def find(python: str, python_bin: str, user_env: Mapping[str, str]) -> Found:
    """The mpirun for a job; raises NoMpi where there is none, or where the ranks' library is of another kind."""
    path = f"{python_bin}:{Path(python).parent}:{user_env.get('PATH', SYSTEM_PATH)}"
    program = shutil.which("mpirun", path=path) or shutil.which("mpiexec", path=path)
    if program is None:
        raise NoMpi(f"there is no mpirun in the environment of {python} or on PATH ({path})", INSTALL)
    env = {"LANG": "C.UTF-8", "HOME": os.environ.get("HOME", "/"), **user_env, "PATH": path}
    key = (python, program, *(f"{name}={value}" for name, value in sorted(env.items())))
    known = _known.get(key)
    if known is None or any(_changed_ns(file) != at for file, at in known.watched.items()):
        known = _known[key] = _ask(python, program, env)
    return known.found


def _ask(python: str, program: str, env: Mapping[str, str]) -> _Known:
    said = _run([program, "--version"], env)
    kind = recognise(said)
    if kind is None:
        first = said.strip().splitlines()[:1]
        raise NoMpi(
            f"{program} is no MPI that Muster knows ({first[0] if first else 'it says nothing'!r}); "
            "Open MPI 4 and 5, MPICH and Intel MPI are known",
            INSTALL,
        )
    told = _probe(python, env)
    library = recognise(told.get("text", ""))
    if library is not None and library.family != kind.family:
        by = f"{told['by']} of {python}"
        raise NoMpi(
            f"{program} is {kind}, but {by} loads {library}: every rank would think that it is alone",
            f"Install the mpirun of {library.name} into the job's environment, or {told['by']} for {kind.name}.",
        )
    watched = {file: _changed_ns(file) for file in (program, *told.get("watch", ()))}
    return _Known(Found(program, kind), watched)


def _probe(python: str, env: Mapping[str, str]) -> dict[str, Any]:
    lines = _run([python, "-c", _PROBE], env).strip().splitlines()
    try:
        told = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _run(command: list[str], env: Mapping[str, str]) -> str:
    try:
        # The lock keeps the agent from taking the child for an orphan.
        with spawning:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_PATIENCE_S, env=dict(env), cwd="/", errors="replace"
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoMpi(f"{command[0]} cannot be run: {error}", INSTALL) from error
    return done.stdout


def _changed_ns(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns  # noqa: PTH116
    except OSError:
        return 0
