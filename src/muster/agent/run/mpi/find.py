"""Which MPI a job on this node would use: its mpirun, and the library that its ranks would load."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from muster.agent.prepare.preflight import Confine, modified_ns
from muster.agent.refusal import Refusal
from muster.agent.run.variables import SYSTEM_PATH
from muster.environments.caller import Used
from muster.environments.venvs.contents import MPI_LIBRARY
from muster.host.children import spawning
from muster.launch.mpi import INSTALL, OPEN_MPI, SLURM, Kind, recognise

PLUGIN_VARIABLE = "MUSTER_AGENT_MPI"
"""Slurm's MPI plugin, where its `srun` is to start the ranks."""

_PATIENCE_S = 60.0
_MPIRUN = "Or leave `mpi` out of the cluster's settings: mpirun then starts the ranks."

_PROBE = f"""{MPI_LIBRARY}
import json, sys
print(json.dumps({{"watch": [path for path in sys.path if os.path.isdir(path)], **mpi_library()}}))
"""


class Found(NamedTuple):
    program: str
    kind: Kind


_known: dict[tuple[str, ...], tuple[Found, dict[str, int]]] = {}
"""Earlier results, with the modification times of the files that they depend on."""


def find(python: str, python_bin: str, user_env: Mapping[str, str], confine: Confine = list) -> Found:
    """The mpirun for a job; raises Refusal where there is none, or where the ranks' library is of another kind."""
    path = f"{python_bin}:{Path(python).parent}:{user_env.get('PATH', SYSTEM_PATH)}"
    env = {"LANG": "C.UTF-8", "HOME": os.environ.get("HOME", "/"), **user_env, "PATH": path}
    if plugin := os.environ.get(PLUGIN_VARIABLE):
        return _find_srun(plugin, python, env, confine)
    program = shutil.which("mpirun", path=path) or shutil.which("mpiexec", path=path)
    if program is None:
        raise _no_mpi(f"there is no mpirun in the environment of {python} or on PATH ({path})")
    key = (python, program, *(f"{name}={value}" for name, value in sorted(env.items())))
    known = _known.get(key)
    if known is None or any(modified_ns(file) != at for file, at in known[1].items()):
        probed = _probe(python, env, confine)
        found = _fitting(program, _run(confine([program, "--version"]), env), probed, python)
        known = _known[key] = found, {file: modified_ns(file) for file in (program, *probed.get("watch", ()))}
    return known[0]


def _find_srun(plugin: str, python: str, env: Mapping[str, str], confine: Confine) -> Found:
    """Slurm's launcher, where the cluster asks for it; raises Refusal where the ranks' library does not support it."""
    demand = f"the cluster starts MPI ranks with srun --mpi={plugin}"
    program = shutil.which("srun", path=os.environ.get("PATH"))
    if program is None:
        raise _no_mpi(f"{demand}, and there is no srun on this node", _MPIRUN)
    probed = _probe(python, env, confine)
    loaded = recognise(probed.get("text", ""))
    if loaded is not None and loaded.name != OPEN_MPI:
        raise _no_mpi(
            f"{demand}, but {probed['by']} of {python} loads {loaded}, which may not speak PMIx: every rank would "
            "think that it is alone",
            f"Use Open MPI in the job's environment. {_MPIRUN}",
        )
    return Found(program, Kind(SLURM, plugin))


def _no_mpi(message: str, next: str = INSTALL) -> Refusal:
    return Refusal("launcher_missing", message, next)


def find_inside(used: Used) -> Found:
    """The mpirun of an image, as its inspection found it; raises Refusal."""
    image, held = used.container.label, used.contents
    program = held.programs.get("mpirun") or held.programs["mpiexec"]
    return _fitting(program, held.mpi, held.library, f"the image {image}")


def _fitting(program: str, version_text: str, library: Mapping[str, Any], where: str) -> Found:
    """The mpirun with this version text; raises Refusal where the ranks load another library."""
    kind = recognise(version_text)
    if kind is None:
        first = version_text.strip().splitlines()[:1]
        raise _no_mpi(
            f"{program} is not an MPI that Muster supports ({first[0] if first else 'it prints nothing'!r}); "
            "Open MPI 4 and 5, MPICH and Intel MPI are supported"
        )
    loaded = recognise(library.get("text", ""))
    if loaded is not None and loaded.family != kind.family:
        raise _no_mpi(
            f"{program} is {kind}, but {library['by']} of {where} loads {loaded}: every rank would think that it is "
            "alone",
            f"Install the mpirun of {loaded.name} into the job's environment, or {library['by']} for {kind.name}.",
        )
    return Found(program, kind)


def _probe(python: str, env: Mapping[str, str], confine: Confine) -> dict[str, Any]:
    lines = _run(confine([python, "-c", _PROBE]), env).strip().splitlines()
    try:
        version_text = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return version_text if isinstance(version_text, dict) else {}


def _run(command: list[str], env: Mapping[str, str]) -> str:
    try:
        # The lock keeps the agent from taking the child for an orphan.
        with spawning:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_PATIENCE_S, env=dict(env), cwd="/", errors="replace"
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _no_mpi(f"{command[0]} cannot be run: {error}") from error
    return done.stdout
