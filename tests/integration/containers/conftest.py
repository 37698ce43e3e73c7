"""A small image made by debootstrap, kept between runs, and a workspace whose jobs run in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site, site

__all__ = ["Site", "boxes", "image", "site"]

CACHE = Path(os.environ.get("MUSTER_TEST_TOOLS", Path.home() / ".cache" / "muster-tests")) / "containers"
IMAGE = "localhost/muster-test/python:bookworm-1"
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
    missing = [name for name in ("podman", "runc", "debootstrap") if shutil.which(name) is None]
    if missing or os.getuid() != 0:
        reason = f"not installed: {', '.join(missing)}" if missing else "debootstrap needs root"
        pytest.skip(reason)
    if subprocess.run(["podman", "image", "exists", IMAGE], check=False).returncode != 0:
        subprocess.run(["podman", "import", str(_root_filesystem()), IMAGE], check=True, capture_output=True)
    return IMAGE


def _root_filesystem() -> Path:
    archive = CACHE / "bookworm-python3.tar"
    if archive.exists():
        return archive
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        root = Path(folder) / "root"
        packages = "--include=python3-minimal,libpython3-stdlib"
        subprocess.run(["debootstrap", "--variant=minbase", packages, "bookworm", str(root)], check=True)
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
    runs = [run["id"] for run in site.client.runs()]
    return [name for name in listed if any(f"muster-{run}-" in name for run in runs)]
