"""The docker command, which here talks to podman's service."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.integration.containers.conftest import LIMITS, Site, site
from tests.integration.environments.conftest import Shelf, shelf

__all__ = ["shelf", "site"]


@pytest.fixture
def docker(image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    address = f"unix://{tmp_path}/docker.sock"
    with (tmp_path / "service.log").open("wb") as out:
        service = subprocess.Popen(
            ["podman", "--runtime", "runc", "system", "service", "--time", "0", address], stdout=out, stderr=out
        )
    monkeypatch.setenv("DOCKER_HOST", address)
    monkeypatch.setenv("MUSTER_CONTAINER_ENGINE", "docker")
    monkeypatch.setenv("MUSTER_CONTAINER_ARGS", LIMITS)
    try:
        wait_until(lambda: subprocess.run(["docker", "version"], capture_output=True).returncode == 0, 20.0, "docker")
        yield image
    finally:
        service.terminate()
        service.wait(10)


def test_a_job_runs_in_a_container_of_docker(docker: str, site: Site) -> None:
    command = ["python3", "-c", "import os; print('parent', os.getppid())"]
    run = site.run(command=command, environment={"image": docker})
    view = site.wait(run)
    assert view["status"] == "Completed", view["verdict"]
    assert b"parent 1\n" in site.log(run)
    left = subprocess.run(["docker", "ps", "--all", "--quiet"], capture_output=True, text=True, check=True)
    assert left.stdout == ""


@pytest.fixture
def committing(docker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Podman's service refuses docker's `commit`, which sends no body; podman's own command makes the same image."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ "$1" = commit ] && exec podman "$@"\nexec {shutil.which("docker")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return docker


def test_docker_puts_packages_on_an_image(committing: str, shelf: Shelf, site: Site) -> None:
    shelf.wheel("small", "1.0")
    run = site.run(
        command=["python3", "-c", "import small; print(small.VERSION)"],
        environment={"image": committing, "pip": [*shelf.options, "small"]},
    )
    view = site.wait(run)
    try:
        assert view["status"] == "Completed", view["verdict"]
        assert site.log(run) == b"1.0\n"
        asked = ["docker", "image", "inspect", "--format", "{{json .Config.Labels}}", view["environment"]["key"]]
        labels = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
        assert labels["muster.built"].startswith(f"{os.getuid()}-")
        assert not labels["muster.mark"], "what others start from it is not taken for a container of Muster's"
    finally:
        subprocess.run(["docker", "rmi", str(view["environment"].get("key"))], check=False, capture_output=True)
