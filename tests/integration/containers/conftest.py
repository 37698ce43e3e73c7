"""A small image made by debootstrap, kept between runs, and a workspace whose jobs run in it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site, site

__all__ = ["Site", "boxes", "image", "mpi_image", "mpi_root", "site"]

TOOLS = Path(os.environ.get("MUSTER_TEST_TOOLS") or Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache/muster-tests")
CACHE = TOOLS / "containers"
_PYTHON = (CACHE / "bookworm-python3.tar", "python3-minimal,libpython3-stdlib")
_OPEN_MPI = (CACHE / "bookworm-openmpi.tar", f"{_PYTHON[1]},openmpi-bin,python3-mpi4py")
# What podman needs on small virtual machines whose root may not raise limits.
LIMITS = "--ulimit nofile=4096:4096 --ulimit nproc=4096:4096"
MACHINE = f"--runtime runc {LIMITS}"
_LEFT_OUT = (
    "./var/cache/apt",
    "./var/lib/apt/lists",
    "./usr/share/doc",
    "./usr/share/locale",
    "./usr/share/man",
    "./dev",
)


@pytest.fixture(scope="session")
def image() -> str:
    """An image with python3 alone."""
    return _image("localhost/muster-test/python:bookworm-1", *_PYTHON)


@pytest.fixture(scope="session")
def mpi_image() -> str:
    """An image with Debian's Open MPI and mpi4py."""
    return _image("localhost/muster-test/openmpi:bookworm-1", *_OPEN_MPI)


@pytest.fixture(scope="session")
def mpi_root() -> Path:
    """The same as an archive."""
    _require()
    return _root_filesystem(*_OPEN_MPI)


def _image(name: str, archive: Path, packages: str) -> str:
    _require()
    if subprocess.run(["podman", "image", "exists", name], check=False).returncode != 0:
        file = _root_filesystem(archive, packages)
        subprocess.run(["podman", "import", str(file), name], check=True, capture_output=True)
    return name


def _require() -> None:
    missing = [name for name in ("podman", "runc", "debootstrap") if shutil.which(name) is None]
    if missing or os.getuid() != 0:
        reason = f"not installed: {', '.join(missing)}" if missing else "debootstrap needs root"
        pytest.skip(reason)


def _root_filesystem(archive: Path, packages: str) -> Path:
    if archive.exists():
        return archive
    downloads = CACHE / "debs"
    downloads.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        root = Path(folder) / "root"
        options = ["--variant=minbase", f"--include={packages}", f"--cache-dir={downloads}"]
        subprocess.run(["debootstrap", *options, "bookworm", str(root)], check=True)
        partial = Path(folder) / "root.tar"
        leave = [f"--exclude={path}" for path in _LEFT_OUT]
        subprocess.run(["tar", "-C", str(root), *leave, "-cf", str(partial), "."], check=True)
        partial.rename(archive)
    return archive


@pytest.fixture
def boxes(image: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Site]:
    """A workspace whose agents use podman; no container of its own may be left when it goes."""
    monkeypatch.setenv("MUSTER_CONTAINER_ENGINE", "podman")
    monkeypatch.setenv("MUSTER_CONTAINER_ARGS", MACHINE)
    monkeypatch.setenv("MUSTER_CONTAINER_BUILD_ARGS", MACHINE)
    found: Site = request.getfixturevalue("site")
    yield found
    wait_until(lambda: not containers(found), 20.0, "no container left")


def containers(site: Site) -> list[str]:
    """Containers of the runs of a workspace, running or not."""
    listed = subprocess.run(
        ["podman", "ps", "--all", "--format", "{{.Names}}"], capture_output=True, text=True, check=True
    ).stdout.split()
    runs = [run.id for run in site.client.runs()]
    return [name for name in listed if any(f"muster-{run}-" in name for run in runs)]
