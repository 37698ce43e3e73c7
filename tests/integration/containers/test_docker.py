"""The docker command, which here talks to podman's service."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.integration.containers.conftest import LIMITS, Site, site

__all__ = ["site"]


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
