"""MLflow's clients in ranks that mpirun started, with the server away, and in containers."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import psutil
import pytest
from tests.conftest import wait_until
from tests.integration.containers.conftest import MACHINE, image
from tests.integration.server.conftest import Site, site

__all__ = ["image", "site"]

SCRIPTS = Path(__file__).parent / "scripts"


def code(site: Site, script: str) -> str:
    (site.folder / "code").mkdir()
    shutil.copy(SCRIPTS / script, site.folder / "code")
    return "code"


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="not installed: openmpi-bin")
def test_mpi_ranks_log_at_once_while_the_server_is_away_and_lose_nothing(site: Site, mlflow_python: Path) -> None:
    signals = site.folder / "signals"
    signals.mkdir()
    run = site.run(
        code=code(site, "away.py"),
        command=f"{mlflow_python} away.py {signals}",
        distribution={"type": "mpi", "process_count_per_instance": 2},
    )

    def all_ranks(word: str) -> None:
        names = [signals / f"{word}_{rank}" for rank in (0, 1)]
        wait_until(lambda: all(name.exists() for name in names), 120.0, f"{word} on both ranks")

    all_ranks("began")
    server = site.server()
    server.send_signal(signal.SIGKILL)
    psutil.wait_procs([server], 10)
    (signals / "gone").touch()
    # Nobody has started a server since: whatever the ranks wait for, it is not that.
    all_ranks("logged")
    assert not server.is_running()
    site.client.health()
    (signals / "back").touch()
    assert site.wait(run, timeout_s=120.0)["status"] == "Completed", site.view(run)["verdict"]
    series = {(item.name, item.rank): item.values for item in site.client.metric_series(run)}
    for rank in (0, 1):
        assert series[f"loss_{rank}", rank] == tuple(1.0 / (step + 1) for step in range(50))
    assert site.client.params(run) == {"away_0": "yes", "away_1": "yes"}
    assert set(site.view(run)["tags"]) == {"tag_0", "tag_1"}
    assert {"reports/rank_0.json", "reports/rank_1.json"} <= {file.path for file in site.client.files(run)}


def test_a_rank_in_a_container_logs_and_reads(
    monkeypatch: pytest.MonkeyPatch, image: str, mlflow_python: Path, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("MUSTER_CONTAINER_ENGINE", "podman")
    monkeypatch.setenv("MUSTER_CONTAINER_ARGS", MACHINE)
    site: Site = request.getfixturevalue("site")
    (packages,) = mlflow_python.parents[1].glob("lib/python3*/site-packages")
    run = site.run(
        code=code(site, "boxed.py"),
        command="python boxed.py ${{inputs.client}}",
        environment={"image": image},
        inputs={"client": {"type": "uri_folder", "path": str(packages)}},
    )
    view = site.wait(run, timeout_s=120.0)
    assert view["status"] == "Completed", view["verdict"]
    assert b"logged from the container" in site.log(run)
    assert (view["metrics"]["loss"], view["metrics"]["accuracy"]) == (0.25, 0.75)
    assert site.client.params(run) == {"boxed": "True"}
    assert "notes/box.txt" in {file.path for file in site.client.files(run)}
