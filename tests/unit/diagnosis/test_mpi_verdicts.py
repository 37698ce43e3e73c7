"""Verdicts of MPI jobs, where mpirun is a process beside the ranks."""

from __future__ import annotations

import signal

import pytest

from muster.diagnosis.verdict import judge
from muster.wire.verdicts import Evidence, NodeEvidence, RankEvidence

NODES = [NodeEvidence(0, "local-0"), NodeEvidence(1, "local-1")]
SOCKET_CLOSED = """\
[vm:00000] *** An error occurred in Socket closed
[vm:00000] *** reported by process [1324679169,1]
[vm:00000] *** on a NULL communicator
[vm:00000] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,
"""
ABORT = "Abort(5) on node 3 (rank 3 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 5) - process 3\n"
NOTICED = """\
--------------------------------------------------------------------------
prterun noticed that process rank 3 with PID 3085 on node vm exited on
signal 11 (Segmentation fault).
--------------------------------------------------------------------------
"""
LOST_DAEMON = """\
--------------------------------------------------------------------------
ORTE has lost communication with a remote daemon.

  HNP daemon   : [[26855,0],0] on node vm
  Remote daemon: [[26855,0],1] on node local-1

This is usually due to either a failure of the TCP network
connection to the node, or possibly an internal failure of
the daemon itself. We cannot recover from this failure, and
therefore will terminate the job.
--------------------------------------------------------------------------
Killed
"""


def rank(number: int, **how) -> RankEvidence:
    return RankEvidence(number, f"local-{number // 2}", role="worker", **how)


def mpirun(**how) -> RankEvidence:
    return RankEvidence(4, "local-0", role="launcher", **how)


def verdict(*ranks: RankEvidence):
    return judge(Evidence(ranks=ranks, nodes=NODES, stop_reason="rank_failed"))


def test_a_rank_of_which_open_mpi_says_that_it_lost_a_peer_is_not_first() -> None:
    made = verdict(
        rank(1, exit_code=14, ended_at=1.0),
        rank(3, exit_code=7, ended_at=2.0),
        mpirun(signal=signal.SIGKILL, expected=True, tail=SOCKET_CLOSED, ended_at=3.0),
    )
    assert (made.rank, made.message) == (3, "rank 3 on local-1 exited with code 7")


def test_a_rank_that_open_mpi_ended_without_a_word_is_not_first_though_it_was_seen_first() -> None:
    srun = mpirun(signal=signal.SIGKILL, expected=True, ended_at=3.0)
    made = verdict(rank(2, exit_code=14, ended_at=1.0), rank(3, exit_code=7, ended_at=1.1), srun)
    assert (made.rank, made.message) == (3, "rank 3 on local-1 exited with code 7")


def test_a_rank_that_exits_with_that_code_by_itself_is_named() -> None:
    made = verdict(mpirun(exit_code=14, ended_at=0.5), rank(2, exit_code=14, ended_at=1.0))
    assert (made.code, made.message) == ("exit_code", "rank 2 on local-1 exited with code 14")


def test_mpirun_passes_on_what_a_rank_did() -> None:
    made = verdict(mpirun(exit_code=7, ended_at=1.0), rank(2, exit_code=7, ended_at=2.0))
    assert made.rank == 2


def test_a_killed_mpirun_is_named_as_such() -> None:
    made = verdict(mpirun(signal=signal.SIGKILL, ended_at=1.0), rank(2, exit_code=14, ended_at=2.0))
    assert made.message == "mpirun on local-0 was ended by SIGKILL"
    assert "mpi_log.txt" in made.next


def test_after_mpi_abort_the_one_that_called_it_is_named_though_all_were_killed() -> None:
    killed = {"signal": signal.SIGKILL, "ended_at": 1.0}
    made = verdict(rank(0, **killed), rank(3, **killed, tail=ABORT), mpirun(exit_code=5, ended_at=0.5))
    assert (made.code, made.rank, made.message) == (
        "exit_code",
        3,
        "rank 3 on local-1 exited with code 5: " + ABORT.strip(),
    )


def test_a_rank_that_mpirun_names_is_shown_on_its_own_node_with_its_own_words() -> None:
    made = verdict(
        rank(3, exit_code=None, expected=True, tail="last words\n"),
        mpirun(exit_code=139, tail=NOTICED, ended_at=1.0),
    )
    assert (made.rank, made.node) == (3, "local-1")
    assert "SIGSEGV" in made.message


def test_a_rank_that_lost_mpirun_says_so() -> None:
    made = verdict(rank(2, exit_code=None, lost_with="daemon of mpirun", ended_at=1.0))
    assert made.code == "platform"
    assert "daemon of mpirun" in made.message


def test_an_mpirun_that_lost_a_daemon_says_where_and_it_is_no_error_of_the_job() -> None:
    made = verdict(mpirun(exit_code=205, tail=LOST_DAEMON, ended_at=1.0), rank(0, signal=9, expected=True))
    assert (made.code, made.message) == ("platform", "mpirun on local-0 lost contact with its daemon on local-1")
    assert "mpi_log.txt" in made.next and "ORTE has lost" in "\n".join(made.lines)


def test_a_daemon_that_went_with_its_node_or_its_rank_is_not_the_cause() -> None:
    nodes = [NodeEvidence(0, "local-0"), NodeEvidence(1, "local-1", lost=True)]
    lost = mpirun(exit_code=205, tail=LOST_DAEMON, ended_at=1.0)
    assert judge(Evidence(ranks=[lost], nodes=nodes, stop_reason="node_lost")).code == "node_lost"
    made = verdict(lost, rank(3, signal=signal.SIGKILL, oom_killed=True, ended_at=2.0))
    assert (made.code, made.rank) == ("host_oom", 3)


def test_a_lost_node_is_the_cause_of_what_mpirun_killed_on_the_others() -> None:
    nodes = [NodeEvidence(0, "local-0"), NodeEvidence(1, "local-1", lost=True)]
    ranks = [rank(0, signal=signal.SIGKILL, ended_at=1.0), mpirun(exit_code=1, ended_at=2.0)]
    made = judge(Evidence(ranks=ranks, nodes=nodes, stop_reason="node_lost"))
    assert (made.code, made.node) == ("node_lost", "local-1")


def test_what_mpirun_says_of_a_rank_that_left_without_a_word_does_not_make_it_the_culprit() -> None:
    told = "prterun detected that one or more processes exited with an error\n"
    made = verdict(
        rank(3, exit_code=7, ended_at=1.0, tail="ready\n"),
        rank(0, signal=signal.SIGTERM, expected=True, tail="ready\n"),
        mpirun(signal=signal.SIGKILL, expected=True, tail=told, ended_at=3.0),
    )
    assert (made.rank, made.message) == (3, "rank 3 on local-1 exited with code 7; its last line: ready")


FARM = """\
worker 2:
Traceback (most recent call last):
  File "/job/work/farm.py", line 14, in divide
    return a // b
ZeroDivisionError: integer division or modulo by zero
master: 1 5
master: worker 2 {how}, aborting
--------------------------------------------------------------------------
MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD
with errorcode 17.
--------------------------------------------------------------------------
"""


@pytest.mark.parametrize("how", ["failed", "reports a failure", "has died", "raised an exception"])
def test_a_worker_for_whom_the_master_aborts_is_to_blame(how: str) -> None:
    one = RankEvidence(0, "local-0", 17, tail=FARM.format(how=how), command="mpirun -n 4 python farm.py")
    made = judge(Evidence((one,), NODES[:1], "rank_failed"))
    assert (made.code, made.rank) == ("exception", 2)
    assert "ZeroDivisionError" in made.message


def test_a_program_that_mpirun_does_not_find_is_no_ranks_fault_also_inside_a_script() -> None:
    page = (
        "-" * 74 + "\nprterun was unable to find the specified executable file, and did not launch\nthe job.\n\n"
        "   Node:       vm\n   Executable: lmp_mpi\n" + "-" * 74 + "\n"
    )
    made = judge(
        Evidence((RankEvidence(0, "local-0", 66, tail=page, command="bash job.sh"),), NODES[:1], "rank_failed")
    )
    assert (made.code, made.rank) == ("launcher_missing", None)
    assert "lmp_mpi" in made.message
