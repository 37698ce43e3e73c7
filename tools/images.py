"""Builds an image for each framework, from the files in `images/`: `python -m tools.images [NAMES] [options]`.

The packages are those of the curated environments, so a job finds the same in the image as without one.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from muster.environments import catalogue
from muster.version import VERSION

FOLDER = Path(__file__).parents[1] / "images"
MPI = "mpi"
CURATED = {
    "pytorch": ("horovod-torch",),
    "tensorflow": ("horovod-tensorflow",),
    "keras": ("keras", "horovod-tensorflow"),
}
"""Which curated environments' packages an image has."""
_OF_THE_SYSTEM = ("openmpi", "horovod")
"""What the image has from Debian, or compiles itself."""


@dataclass(frozen=True)
class Build:
    """One image: its folder in `images/`, its tag, what it stands on, and the files beside its Containerfile."""

    name: str
    tag: str
    base: str | None
    files: dict[str, str]


def plan(names: Sequence[str], base: str | None, registry: str, flavour: str) -> list[Build]:
    """The images in the order in which they are built."""
    wanted = [name for name in (MPI, *CURATED) if name in names or name == MPI]
    tags = {name: f"{registry or 'localhost'}/muster-{name}:{VERSION}-{flavour}" for name in wanted}
    return [Build(MPI, tags[MPI], base, {})] + [
        Build(name, tags[name], tags[MPI], _files(name, flavour)) for name in wanted if name != MPI
    ]


def command(engine: str, build: Build, folder: Path, options: Sequence[str] = ()) -> list[str]:
    """What builds an image."""
    stands_on = ["--build-arg", f"BASE={build.base}"] if build.base else []
    return [engine, "build", *options, *stands_on, "--tag", build.tag, "--file", f"{folder}/Containerfile", str(folder)]


def _files(name: str, flavour: str) -> dict[str, str]:
    recipes = [catalogue.load(curated).recipes[flavour] for curated in CURATED[name]]
    packages = dict.fromkeys(package for recipe in recipes for package in recipe.requirements)
    own = [package for package in packages if not package.startswith(_OF_THE_SYSTEM)]
    horovod = [package for package in packages if package.startswith("horovod")]
    indexes = dict.fromkeys(index for recipe in recipes for index in recipe.indexes)
    compiler = resources.files("muster.environments").joinpath("venvs", "horovod-cxx").read_text()
    return {
        "requirements.txt": "".join(f"{package}\n" for package in own),
        "horovod.txt": "".join(f"{package}\n" for package in horovod),
        "options.txt": "".join(f"--extra-index-url {index}\n" for index in indexes),
        "compiler": compiler,
    }


def main(words: Sequence[str] | None = None) -> int:
    asked = _asked(words)
    engine = asked.engine or next((name for name in ("podman", "docker") if shutil.which(name)), None)
    if engine is None:
        print("error: neither podman nor docker is installed, which build the images.", file=sys.stderr)
        return 1
    options = shlex.split(os.environ.get("MUSTER_CONTAINER_BUILD_ARGS", ""))
    for build in plan(asked.names or [*CURATED], asked.base, asked.registry.rstrip("/"), asked.flavour):
        with tempfile.TemporaryDirectory(prefix="muster-image-") as made:
            folder = Path(made)
            shutil.copy(FOLDER / build.name / "Containerfile", folder)
            for name, text in build.files.items():
                (folder / name).write_text(text, encoding="utf-8")
            print(f"building {build.tag}", flush=True)
            if code := subprocess.call(command(engine, build, folder, options)):
                return code
        if asked.registry and (code := subprocess.call([engine, "push", build.tag])):
            return code
    return 0


def _asked(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.images", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[MPI, *CURATED, []], help="which ones; all unless some are named")
    parser.add_argument("--base", help="what they stand on, instead of Debian's own image")
    parser.add_argument("--registry", default="", metavar="HOST/TEAM", help="where they are pushed to; nowhere without")
    parser.add_argument("--flavour", default="cpu", choices=["cpu", "gpu"], help="whose packages: cpu or gpu")
    parser.add_argument("--engine", help="podman or docker; the first that is there")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
