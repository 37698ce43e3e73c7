"""Logs of failures that did not happen under Muster, and failures that are alike."""

from __future__ import annotations

from muster.diagnosis.foreign import LogFile, explained
from muster.diagnosis.passages import TAIL_BYTES, is_explained, shortened
from muster.diagnosis.similar import Earlier, similar_to
from muster.wire.verdicts import JobFacts, RankEvidence, Verdict

RAISED = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: no\n'


def told(*files: LogFile) -> Verdict:
    return explained(files, JobFacts())


def test_a_single_log() -> None:
    made = told(LogFile("out.txt", f"epoch 1\n{RAISED}"))
    assert (made.code, made.message) == ("exception", "rank 0: ValueError: no")


def test_a_file_for_each_rank() -> None:
    made = told(LogFile("rank_0.log", "epoch 1\n"), LogFile("rank_7.log", RAISED), LogFile("rank_2.log", "epoch 1\n"))
    assert (made.code, made.rank) == ("exception", 7)


def test_lines_that_srun_labels() -> None:
    lines = "".join(f"0: {n}\n1: {n}\n" for n in range(4)) + "".join(f"1: {line}\n" for line in RAISED.split("\n"))
    made = told(LogFile("slurm.out", f"{lines}srun: error: n7: task 1: Exited with exit code 1\n"))
    assert (made.code, made.rank) == ("exception", 1)


def test_the_ends_that_slurm_tells_of() -> None:
    limit = "x\nslurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-16T08:00:00 DUE TO TIME LIMIT ***\n"
    assert told(LogFile("a", limit)).code == "timeout"
    assert told(LogFile("a", limit.replace("TIME LIMIT", "PREEMPTION"))).code == "preempted"
    assert told(LogFile("a", limit.replace(" DUE TO TIME LIMIT", ""))).code == "cancelled"
    assert told(LogFile("a", "x\nsrun: error: n1: task 0: Out Of Memory\n")).code == "host_oom"


# What srun prints when one task has failed: it ends the others, which is no cancellation.
REST_ENDED = (
    "srun: Terminating StepId=9.0\n"
    "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-11-16T08:00:00 ***\n"
    "srun: error: n1: tasks 0-1,3: Terminated\n"
)


def test_a_step_that_slurm_ends_because_a_task_failed_was_not_cancelled() -> None:
    killed = told(LogFile("a", f"x\nsrun: error: n2: task 2: Out Of Memory\n{REST_ENDED}"))
    assert (killed.code, killed.rank, killed.node) == ("host_oom", 2, "n2")
    assert "`--mem`" in killed.next
    crashed = told(LogFile("a", f"x\nsrun: error: n2: task 2: Segmentation fault\n{REST_ENDED}"))
    assert (crashed.code, crashed.rank, crashed.message.endswith("its last line: x")) == ("signal", 2, True)
    assert told(LogFile("a", f"x\n{REST_ENDED.partition(chr(10))[2]}")).code == "cancelled"


def test_lines_that_torch_marks_belong_to_their_ranks() -> None:
    lost = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:41234\n"
    first = "".join(f"[rank0]: {line}\n" for line in RAISED.replace("ValueError: no\n", lost).splitlines())
    second = "".join(f"[rank2]: {line}\n" for line in RAISED.splitlines())
    ended = "srun: error: n1: task 0: Exited with exit code 1\nsrun: error: n2: task 2: Exited with exit code 1\n"
    made = told(LogFile("slurm.out", f"step 1\nstep 1\n{first}{second}{ended}{REST_ENDED}"))
    assert (made.message, made.node) == ("rank 2 on n2: ValueError: no", "n2")
    assert [end.rank for end in made.evidence.ranks] == [0, 2]


def test_a_rank_that_had_failed_before_the_job_was_cancelled_is_the_cause() -> None:
    cancelled = "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-11-16T08:00:00 ***\n"
    made = told(LogFile("a", f"step 1\n{RAISED}{cancelled}"))
    assert (made.code, made.confidence) == ("exception", "likely")
    assert made.message == "rank 0: ValueError: no; it did not end, and the job was cancelled"
    assert made.second is not None and made.second.code == "cancelled"


def test_what_no_line_tells_is_not_made_up() -> None:
    made = told(LogFile("a", "epoch 1\nepoch 2\n"))
    assert (made.code, made.confidence) == ("exit_code", "unsure")
    assert made.message == "rank 0 said nothing that sounds like a failure; its last lines: epoch 1 / epoch 2"
    assert made.evidence.ranks[0].exit_code is None
    several = told(LogFile("rank_0.log", "epoch 1\n"), LogFile("rank_1.log", "epoch 1\nepoch 2\n"))
    assert (several.code, several.rank, several.confidence) == ("exit_code", None, "unsure")
    assert several.message.endswith("the last line of rank 1: epoch 2")
    loud = told(LogFile("a", "epoch 1\nfatal: cannot read the index\n"))
    assert (loud.message, loud.confidence) == ("rank 0: fatal: cannot read the index", "likely")
    assert told(LogFile("a", "x\n", exit_code=3)).message.startswith("rank 0 exited with code 3")


def test_mpich_names_who_called_abort() -> None:
    banner = "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   EXIT CODE: 9\n"
    said = "Abort(1) on node 2 (rank 2 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - process 2\n"
    made = told(LogFile("a.out", f"{said}\n{'=' * 60}\n{banner}"))
    assert (made.rank, "application called MPI_Abort" in made.message) == (2, True)


def test_a_shell_tells_of_signals() -> None:
    assert (
        told(LogFile("a", "step 1\n./run.sh: line 2: 17 Segmentation fault (core dumped) ./a.out\n")).code == "signal"
    )


def test_times_in_front_of_every_line_are_left_out() -> None:
    stamped = "".join(f"2026-11-16T08:00:0{n % 10}Z {line}\n" for n, line in enumerate(f"a\nb\n{RAISED}".split("\n")))
    assert told(LogFile("pod.log", stamped)).message == "rank 0: ValueError: no"


def test_an_exception_before_a_long_flood_is_looked_for() -> None:
    rank = RankEvidence(0, "n", 1)
    flood = RAISED + "closing the shards of the cache\n" * 3000
    seen = shortened(flood, rank)
    assert "ValueError: no" in seen and len(seen) < TAIL_BYTES + 20_000
    assert not is_explained(RankEvidence(0, "n", 1, tail="bye\n"))
    assert shortened("x" * 100_000, rank) == "x" * TAIL_BYTES


def test_failures_of_the_same_kind_are_counted() -> None:
    verdict = Verdict("exception", "rank 3 on node-1: ValueError: 17 of 10 classes", 3)
    same = Verdict("exception", "rank 0 on node-7: ValueError: 11 of 10 classes", 0)
    other = Verdict("exception", "rank 0 on node-7: KeyError: 'x'", 0)
    earlier = [Earlier("a", 990.0, same), Earlier("b", 980.0, same, "code 1a2b"), Earlier("c", 985.0, other)]
    found = similar_to(verdict, earlier, 1000.0)
    assert found is not None and (found.count, found.runs) == (2, ("a", "b"))
    assert found.text == "failed in the same way 2 times this week (runs a, b), first with code 1a2b"
    assert similar_to(verdict, [Earlier("a", -1e6, same)], 1000.0) is None
    named = similar_to(verdict, earlier, 1000.0, {"b": "commit 5e6f7a8b"}.__getitem__)
    assert named is not None and named.text.endswith("(runs a, b), first with commit 5e6f7a8b")


def test_failures_of_which_little_is_known_are_not_called_alike() -> None:
    def similar(code: str, first: str, second: str) -> bool:
        earlier = [Earlier("a", 990.0, Verdict(code, first))]
        return similar_to(Verdict(code, second), earlier, 1000.0) is not None

    limit = "the time limit of 12 s passed"
    here = f"{limit}; rank 0 on node-0 was at train.py line 14, in main: `queue.get()`"
    assert similar("timeout", here, here.replace("rank 0 on node-0", "rank 3 on node-2").replace("12 s", "60 s"))
    assert not similar("timeout", here, f"{limit}; rank 1 on node-0 was waiting in another call")
    assert not similar("timeout", limit, limit)
    left = "rank 0 on node-0 exited with code 3; its last lines: "
    assert similar("exit_code", f"{left}step 7", f"{left}step 9")
    assert not similar("exit_code", f"{left}step 7", f"{left}no more data")


def test_the_log_of_one_rank_whose_library_complains_of_the_others() -> None:
    made = told(
        LogFile(
            "out.txt",
            "terminate called after throwing an instance of 'c10::DistBackendError'\n"
            "  what():  [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(7)\nAborted (core dumped)\n",
        )
    )
    assert made.code == "collective"
    assert "Watchdog caught collective operation timeout" in made.message


def test_ends_that_launchers_tell_of() -> None:
    killed = told(LogFile("a.out", "loading\n[ERROR] [launch.py:325] ['python', 'train.py'] return code = -9\n"))
    assert (killed.code, "SIGKILL" in killed.message) == ("signal", True)
    coded = told(LogFile("a.out", "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   EXIT CODE: 9\n"))
    assert "exited with code 9" in coded.message
