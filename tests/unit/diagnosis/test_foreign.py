"""Logs of failures that did not happen under Muster, and failures that are alike."""

from __future__ import annotations

from muster.diagnosis.foreign import LogFile, evidence_of
from muster.diagnosis.passages import TAIL_BYTES, is_explained, shortened
from muster.diagnosis.similar import Earlier, similar_to
from muster.diagnosis.verdict import judge
from muster.wire.verdicts import RankEvidence, Verdict

RAISED = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: no\n'


def told(*files: LogFile) -> Verdict:
    return judge(evidence_of(files))


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
