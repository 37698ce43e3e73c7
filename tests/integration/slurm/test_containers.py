"""Agents and ranks inside a container of the site's; a program stands for apptainer, which is not installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.server.conftest import Site
from tests.integration.slurm.conftest import OPTIONS, open_site
from tests.sites.slurm import SlurmSite

APPTAINER = """\
#!/bin/bash
echo "$@" >"$(dirname "$0")/called"
shift
while [[ $1 == -* ]]; do [[ $1 == --nv ]] || shift; shift; done
shift
exec "$@"
"""


@pytest.fixture
def contained(slurm: SlurmSite, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    program = tmp_path / "bin" / "apptainer"
    program.parent.mkdir()
    program.write_text(APPTAINER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    yield from open_site(slurm, workspace, monkeypatch)


def test_agents_start_inside_the_image_that_the_cluster_names(contained: Site, tmp_path: Path):
    options = {**OPTIONS, "container": "/images/torch.sif", "container_runtime": "apptainer"}
    contained.client.create_cluster("boxed", "slurm", {**options, "container_mounts": ["/scratch"]})
    run_id = contained.run(command="true", compute="boxed")
    view = contained.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    called = (tmp_path / "bin" / "called").read_text()
    workspace = contained.folder / ".muster"
    assert f"exec --nv --bind {workspace}:{workspace} --bind /scratch:/scratch --pwd / /images/torch.sif" in called
