"""Stand-ins that srun starts, and the keeper's side of them: without Slurm."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import wait_until

from muster.agent.refusal import Refusal
from muster.agent.run.mpi import standin
from muster.agent.run.mpi.coordinator import MpiCoordinator, PmixStep
from muster.agent.run.mpi.find import PLUGIN_VARIABLE, find
from muster.agent.run.records import LaunchMpi

PMIX = {"PMIX_RANK": "3", "PMIX_NAMESPACE": "slurm.pmix.7.1", "SLURM_STEPID": "1", "SLURM_NTASKS": "4"}


@pytest.fixture
def side(tmp_path: Path) -> Iterator[MpiCoordinator]:
    (tmp_path / "nodes.1" / "mpi").mkdir(parents=True)
    folder = tmp_path / "nodes.1" / "mpi"
    program = folder / "muster-rank"
    program.write_text(f"#!/bin/sh\nenv > {folder}/started\nmv {folder}/started {folder}/env\n")
    program.chmod(0o700)
    made = MpiCoordinator(
        LaunchMpi(
            fifo=str(folder / "said"),
            ranks=(2, 3),
            listen=None,
            secret="",
            daemon_env={"PATH": os.defpath},
            daemon_log=str(folder / "daemon.log"),
            hostname=None,
            pmix={"folder": str(folder), "program": str(program)},
        )
    )
    yield made
    os.close(made._fifo)


def stand_in(tmp_path: Path, **env: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-I", "-S", standin.__file__, str(tmp_path / "nodes"), "mpi"]
    given = {"SLURM_NODEID": "1", "SLURM_PROCID": "3", **env}
    return subprocess.Popen(command, env=given, stderr=subprocess.PIPE, text=True)


def hear(side: MpiCoordinator) -> list[dict[str, object]]:
    select.select(side.descriptors(), [], [], 5)
    return side.hear()


def test_the_keeper_starts_the_rank_with_what_pmix_told_its_stand_in(side: MpiCoordinator, tmp_path: Path) -> None:
    with stand_in(tmp_path, **PMIX) as process:
        assert hear(side) == [{"kind": "here", "rank": 3}]
        seen = tmp_path / "nodes.1" / "mpi" / "env"
        wait_until(seen.exists, 5, "the rank")
        os.wait()
        told = dict(line.split("=", 1) for line in seen.read_text().splitlines())
        assert {name: told.get(name) for name in PMIX} == {**PMIX, "SLURM_NTASKS": None}
        assert process.poll() is None
        write(
            tmp_path, '{"kind": "exited", "rank": 3, "status": 0, "max_rss_kb": 1, "interrupted": false, "at": 1.5}\n'
        )
        assert hear(side)[0]["kind"] == "exited"
        assert process.wait(5) == 0


def test_a_stand_in_outlasts_a_rank_that_failed_and_goes_with_the_keeper(side: MpiCoordinator, tmp_path: Path) -> None:
    with stand_in(tmp_path, **PMIX) as process:
        assert hear(side)
        os.wait()
        write(
            tmp_path, '{"kind": "exited", "rank": 3, "status": 256, "max_rss_kb": 1, "interrupted": false, "at": 1.5}\n'
        )
        assert hear(side)[0]["kind"] == "exited"
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        assert side._pmix is not None
        for descriptor in side._pmix._waiting.values():
            os.close(descriptor)
        assert process.wait(5) == 1


def test_a_rank_is_started_once_however_often_somebody_asks(tmp_path: Path) -> None:
    started: list[str] = []
    step = PmixStep(str(tmp_path), "rank", (0,), lambda command, told: started.append(command) or "")  # type: ignore[func-returns-value]
    Path(standin.pmix_file(str(tmp_path), 0)).write_text("PMIX_RANK=0")
    assert [step.start(0), step.start(0)] == ["", ""]
    assert started == ["rank"]
    step.ended(0, 0)


def test_a_rank_of_which_pmix_told_nothing_is_refused(side: MpiCoordinator, tmp_path: Path) -> None:
    write(tmp_path, '{"kind": "here", "rank": 2}\n')
    (refused,) = hear(side)
    assert (refused["kind"], refused["rank"]) == ("refused", 2)
    assert "what PMIx gave it cannot be read" in str(refused["message"])


def test_a_task_without_pmix_says_so(side: MpiCoordinator, tmp_path: Path) -> None:
    with stand_in(tmp_path) as process:
        assert process.wait(5) == 1
        assert process.stderr is not None
        assert "srun started task 3 without PMIx" in process.stderr.read()


def test_a_node_without_srun_refuses_a_cluster_that_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(PLUGIN_VARIABLE, "pmix")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refusal, match="srun --mpi=pmix, and there is no srun on this node") as refused:
        find(sys.executable, str(tmp_path), {})
    assert "leave `mpi` out of the cluster's settings" in refused.value.event.next


def test_a_library_that_may_not_speak_pmix_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "srun").chmod(0o700)
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho \'{"by": "mpi4py", "text": "MPICH Version: 5.0.2"}\'\n')
    python.chmod(0o700)
    monkeypatch.setenv(PLUGIN_VARIABLE, "pmix")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(Refusal, match=r"mpi4py of .*python loads MPICH 5.0.2, which may not speak PMIx"):
        find(str(python), str(tmp_path), {})


def write(tmp_path: Path, line: str) -> None:
    with (tmp_path / "nodes.1" / "mpi" / "said").open("ab", buffering=0) as fifo:
        fifo.write(line.encode())
