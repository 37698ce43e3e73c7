"""How MPI jobs end: the rank that failed first is named, grace is kept, and nothing is left."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.conftest import process
from tests.integration.mpi.conftest import MpiSite


@pytest.mark.parametrize(
    ("how", "who", "code", "message"),
    [
        ("exit", 3, "exit_code", "rank 3 on local-1 exited with code 7"),
        ("kill", 1, "signal", "rank 1 on local-0 was ended by SIGKILL"),
        ("raise", 2, "exception", "rank 2 on local-1: ValueError: bad luck"),
        ("abort", 2, "exit_code", "rank 2 on local-1 exited with code 5"),
    ],
)
def test_the_rank_that_failed_first_is_named(mpi_site: MpiSite, how: str, who: int, code: str, message: str) -> None:
    run = mpi_site.mpi(f"python fail.py {how} {who}")
    verdict = mpi_site.wait(run)["verdict"]
    assert (verdict["code"], verdict["rank"]) == (code, who)
    assert verdict["message"].startswith(message)
    mpi_site.nothing_left(run)


def one_of(site: MpiSite, run: str, **what: object) -> psutil.Process:
    """The process of a rank, or of `mpirun`, that is told by what the run says of it."""

    def pid() -> int | None:
        ranks = site.view(run)["attempts"][-1]["ranks"]
        return next(rank["pid"] for rank in ranks if what.items() <= rank.items())

    return process(pid, str(what))


def launcher(site: MpiSite, run: str) -> psutil.Process:
    return one_of(site, run, role="launcher")


def start(site: MpiSite, command: str = "python fail.py never 0", **more: Any) -> str:
    run = site.mpi(command, **more)
    site.wait_for_text(run, "ready")
    return run


def test_a_killed_mpirun_ends_the_gang_and_is_named(mpi_site: MpiSite) -> None:
    run = start(mpi_site)
    launcher(mpi_site, run).kill()
    verdict = mpi_site.wait(run)["verdict"]
    assert verdict["code"] == "signal"
    assert verdict["message"].startswith("mpirun on local-0 was ended by SIGKILL")
    mpi_site.nothing_left(run)


def test_a_killed_daemon_of_mpirun_ends_the_gang(mpi_site: MpiSite) -> None:
    run = start(mpi_site)
    daemon = next(parent for parent in one_of(mpi_site, run, rank=3).parents() if parent.name() == "prted")
    daemon.kill()
    verdict = mpi_site.wait(run)["verdict"]
    assert verdict["code"] in ("platform", "collective"), verdict
    assert "mpirun" in verdict["message"] + verdict["next"], verdict
    mpi_site.nothing_left(run)


def test_a_killed_daemon_of_the_systems_mpirun_is_told_as_such(
    mpi_site: MpiSite, python_with: Callable[..., Path]
) -> None:
    if shutil.which("mpirun", path="/usr/bin") is None:
        pytest.skip("the system has no mpirun (openmpi-bin)")
    run = start(mpi_site, python=python_with("mpi4py"))
    parents = one_of(mpi_site, run, rank=3).parents()
    next(parent for parent in parents if parent.name() in ("orted", "prted")).kill()
    verdict = mpi_site.wait(run)["verdict"]
    assert (verdict["code"], verdict["message"]) in (
        ("platform", "mpirun on local-0 lost contact with its daemon on local-1"),
        # The node saw it first.
        ("platform", "rank 2 on local-1 was ended because the daemon of mpirun that kept it was killed"),
    ), verdict
    mpi_site.nothing_left(run)


def test_a_lost_agent_of_the_second_node_is_the_verdict(mpi_site: MpiSite) -> None:
    run = start(mpi_site)
    mpi_site.agent("local-1").kill()
    verdict = mpi_site.wait(run)["verdict"]
    assert (verdict["code"], verdict["node"]) == ("node_lost", "local-1")
    mpi_site.nothing_left(run)


@pytest.mark.parametrize("who", [0, 3])
def test_a_cancelled_rank_has_its_grace_though_the_others_are_gone(mpi_site: MpiSite, who: int) -> None:
    run = start(mpi_site, f"python fail.py save {who}")
    mpi_site.client.cancel(run)
    view = mpi_site.wait(run)
    assert view["status"] == "Canceled"
    assert mpi_site.logs(run)[who] == "ready\nsaved\n"
    signals = {rank["rank"]: rank["signal"] for rank in view["attempts"][-1]["ranks"] if rank["role"] != "launcher"}
    assert signals == {rank: None if rank == who else signal.SIGTERM for rank in range(4)}
    mpi_site.nothing_left(run)


def test_a_second_attempt_has_other_ports(mpi_site: MpiSite) -> None:
    # Rank 1 does not fail: it could end the gang before rank 0 has said anything.
    command = "echo $MASTER_PORT; test $MUSTER_ATTEMPT = 2 || test $MUSTER_NODE_RANK = 1 || exit 3"
    run = mpi_site.mpi(command, per_node=1, retry={"user_error": 1})
    view = mpi_site.wait(run)
    assert view["status"] == "Completed", view["verdict"]
    first = mpi_site.log(run, "attempts/1/user_logs/std_log_process_0.txt")
    assert first != mpi_site.log(run, "user_logs/std_log_process_0.txt")
