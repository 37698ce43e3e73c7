"""Starter scripts and job files: `muster init --template NAME`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from muster.errors import Conflict, NotFound

_FOLDER = Path(__file__).with_name("template_files")
_FILES = {"train.py": "train.py.txt", "job.yml": "job.yml"}
"""Target names, and their names here: a script that imports torch must not be a module of Muster."""


@dataclass(frozen=True)
class Template:
    """A template."""

    about: str
    needs: Mapping[str, str]
    """Modules that the script imports, and their pip packages."""
    by_mpirun: bool = False


TEMPLATES = {
    "ddp": Template("PyTorch, DistributedDataParallel", {"torch": "torch"}),
    "lightning": Template("Lightning", {"torch": "torch", "lightning": "lightning"}),
    "transformers": Template(
        "Hugging Face Trainer", {"torch": "torch", "transformers": "transformers", "accelerate": "accelerate"}
    ),
    "horovod": Template("Horovod on PyTorch, by mpirun", {"torch": "torch"}, by_mpirun=True),
    "tensorflow": Template("TensorFlow, MultiWorkerMirroredStrategy", {"tensorflow": "tensorflow"}),
    "jax": Template("JAX, by mpirun", {"jax": "jax"}, by_mpirun=True),
}


def files_of(name: str) -> dict[str, str]:
    """The files of a template, by name."""
    if name not in TEMPLATES:
        raise NotFound(f"there is no template {name!r}", f"Templates are {', '.join(TEMPLATES)}.")
    return {target: (_FOLDER / name / source).read_text() for target, source in _FILES.items()}


def refuse_to_overwrite(folder: Path, name: str) -> None:
    """Conflict where a file of the template exists already: nothing is written then."""
    existing = [target for target in files_of(name) if (folder / target).exists()]
    if existing:
        raise Conflict(
            f"{' and '.join(existing)} {'is' if len(existing) == 1 else 'are'} in {folder} already, "
            "and nothing was written",
            f"Choose another folder: muster init ./{name} --template {name}",
        )


def write(folder: Path, name: str) -> list[Path]:
    """Write a template's files; Conflict for one that appeared meanwhile, which is kept."""
    refuse_to_overwrite(folder, name)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for target, text in files_of(name).items():
        try:
            with (folder / target).open("x") as file:
                file.write(text)
        except FileExistsError as error:
            raise Conflict(f"{folder / target} is there already", "It was left as it is.") from error
        written.append(folder / target)
    return written


def missing(name: str) -> Iterator[str]:
    """Packages that a template needs and this Python lacks."""
    return (package for module, package in TEMPLATES[name].needs.items() if find_spec(module) is None)


def lacks_mpirun(name: str) -> bool:
    """Whether a template needs an mpirun that is neither next to this Python nor on the PATH."""
    bundled = Path(sys.executable).with_name("mpirun")
    return TEMPLATES[name].by_mpirun and not bundled.exists() and shutil.which("mpirun") is None
