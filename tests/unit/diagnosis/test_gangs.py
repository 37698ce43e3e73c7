"""Who is to blame among ranks that wait for each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from muster.diagnosis.verdict import judge
from muster.wire.verdicts import Evidence, JobFacts, NodeEvidence, RankEvidence, Verdict

TIMED_OUT = """Traceback (most recent call last):
  File "train.py", line 9, in <module>
    dist.all_reduce(x)
RuntimeError: [/x/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation to complete
"""
FLAG = 'Traceback (most recent call last):\n  File "train.py", line 5, in check\nRuntimeError: a rank failed\n'


def stack(rank: int, line: int, waits: bool = False) -> str:
    inner = '  File "/v/site-packages/torch/distributed/distributed_c10d.py", line 3 in all_reduce\n' if waits else ""
    return (
        f"muster: where rank {rank} (process 7) was when it was stopped:\n"
        f'Current thread 0x0 (most recent call first):\n{inner}  File "/job/work/train.py", line {line} in <module>\n'
    )


def rank(number: int, tail: str = "", **how: Any) -> RankEvidence:
    ended = {"exit_code": 1} if not how.get("expected") and "exit_code" not in how else {}
    return RankEvidence(number, "node-0", tail=tail, ended_at=float(number), **{"signal": None, **ended, **how})


def stopped(number: int, tail: str = "") -> RankEvidence:
    return rank(number, tail, signal=15, expected=True)


def verdict(*ranks: RankEvidence, reason: str = "rank_failed", **more: Any) -> Verdict:
    return judge(Evidence(ranks, [NodeEvidence(0, "node-0")], reason, **more))


def test_ranks_that_were_ended_before_they_could_complain_are_not_blamed() -> None:
    made = verdict(
        rank(0, TIMED_OUT), stopped(1, stack(1, 9, True)), stopped(2, stack(2, 4)), stopped(3, stack(3, 9, True))
    )
    assert (made.code, made.rank) == ("collective", 2)
    assert "did not answer the others: it was at train.py line 4" in made.message


def test_where_several_may_be_to_blame_none_is_named_and_all_are_listed() -> None:
    made = verdict(rank(0, TIMED_OUT), stopped(1), stopped(2), stopped(3, stack(3, 9, True)))
    assert (made.rank, made.confidence) == (None, "unsure")
    assert "ranks 1, 2 did not answer" in made.message


def test_a_rank_whose_log_has_the_collectives_error_is_a_victim_though_muster_ended_it() -> None:
    made = verdict(rank(0, TIMED_OUT), stopped(1, TIMED_OUT), stopped(2))
    assert made.rank == 2


def test_of_ranks_that_all_raise_the_one_that_had_said_why_is_named() -> None:
    told = "ERROR: cannot decode 17.jpg\n"
    made = verdict(rank(0, FLAG), rank(1, told + FLAG), rank(2, FLAG))
    assert (made.code, made.rank) == ("exception", 1)
    assert "cannot decode 17.jpg" in made.message


def test_at_a_time_limit_a_rank_that_had_failed_is_the_cause() -> None:
    failed = 'Traceback (most recent call last):\n  File "train.py", line 2, in f\nValueError: slab 1\n'
    made = verdict(stopped(0, stack(0, 9)), stopped(1, failed), reason="timeout", timeout_s=8.0)
    assert (made.code, made.rank) == ("exception", 1)
    assert "the time limit of 8 s passed" in made.message


def test_at_a_time_limit_the_rank_for_which_the_others_wait_is_named() -> None:
    made = verdict(
        *(stopped(n, stack(n, 4 if n == 2 else 9, n != 2)) for n in range(4)), reason="timeout", timeout_s=8.0
    )
    assert (made.code, made.rank) == ("timeout", 2)
    assert "limits.timeout" not in made.next


def test_a_port_that_the_script_fixes_is_its_own_fault() -> None:
    taken = (
        'Traceback (most recent call last):\n  File "train.py", line 2, in f\nRuntimeError: EADDRINUSE port: 12355\n'
    )
    facts = JobFacts(master_port=41000)
    made = verdict(rank(0, taken), facts=facts)
    assert (made.code, made.of_script) == ("port_trouble", True)
    assert "fixes port 12355 itself" in made.next
    assert not verdict(rank(0, taken.replace("12355", "41000")), facts=facts).of_script


def test_a_connection_to_somebody_else_is_not_blamed_on_a_rank_that_waits_or_is_done() -> None:
    refused = 'Traceback (most recent call last):\n  File "a.py", line 2, in f\nConnectionRefusedError: [Errno 111]\n'
    assert verdict(rank(0, refused), stopped(1)).rank == 0
    assert verdict(rank(0, refused), rank(1, exit_code=0), rank(2, exit_code=0)).code == "exception"
    assert verdict(rank(0, refused), rank(1, exit_code=0), stopped(2)).rank == 1


def test_an_exit_code_of_ones_own_is_not_explained_by_what_another_rank_says() -> None:
    made = verdict(rank(0, "step 3\n", exit_code=55), stopped(1, "ERROR: no cache was found\n"), stopped(2))
    assert (made.code, made.rank) == ("exit_code", 0)


def test_an_accident_while_a_failure_is_handled_is_the_cause() -> None:
    handled = 'Traceback (most recent call last):\n  File "a.py", line 2, in f\n    g()\nMemoryError\n'
    then = "\nDuring handling of the above exception, another exception occurred:\n\n"
    after = 'Traceback (most recent call last):\n  File "a.py", line 4, in f\n    {source}\nTypeError: no\n'
    assert verdict(rank(0, handled + then + after.format(source="shrink(x)"))).code == "exception"
    assert verdict(rank(0, handled + then + after.format(source="raise TypeError('no')"))).code == "host_oom"


def raised(line: str, at: int = 5, function: str = "<module>", source: str = "") -> str:
    shown = f"    {source}\n" if source else ""
    return f'Traceback (most recent call last):\n  File "/job/work/train.py", line {at}, in {function}\n{shown}{line}\n'


def test_several_that_were_in_one_place_while_the_rest_waited_are_all_named() -> None:
    late = raised(
        "TimeoutError: rendezvous: 2 of 4 workers registered within 2 s", 16, "barrier", "raise TimeoutError(m)"
    )
    made = verdict(rank(0, late), rank(1, late), stopped(2, stack(2, 6)), stopped(3, stack(3, 6)))
    assert (made.code, made.rank) == ("rendezvous", 2)
    assert "ranks 2, 3 did not answer the others: they were at train.py line 6" in made.message
    assert made.next.startswith("Find out why ranks 2, 3 stayed")


def test_a_rank_that_waits_in_the_function_in_which_others_gave_up_is_a_victim() -> None:
    gave_up = raised("TimeoutError: not all ranks came", 16, "meet", "raise TimeoutError(name)")
    waits = stack(1, 14).replace("in <module>", "in meet")
    made = verdict(rank(0, gave_up), stopped(1, waits), stopped(2, stack(2, 3)))
    assert made.rank == 2


def test_the_rank_that_others_accuse_and_that_accuses_nobody_is_named() -> None:
    made = verdict(
        rank(3, raised("ConnectionError: ring broken: rank 2 sent 0 of 1000 bytes")),
        rank(0, raised("ConnectionError: ring broken: rank 3 sent 0 of 1000 bytes")),
        rank(1, raised("BrokenPipeError: [Errno 32] Broken pipe")),
        rank(2, "max steps reached\n", exit_code=0),
    )
    assert (made.code, made.rank) == ("collective", 2)
    assert "rank 2 on node-0 had ended (exit code 0)" in made.message


def test_the_only_one_that_was_in_another_call_is_named() -> None:
    elsewhere = TIMED_OUT.replace("line 9", "line 7")
    made = verdict(rank(0, TIMED_OUT), rank(1, elsewhere), rank(2, TIMED_OUT), rank(3, TIMED_OUT))
    assert (made.code, made.rank, made.confidence) == ("collective", 1, "likely")
    assert "another call (train.py line 7: `dist.all_reduce(x)`)" in made.message


def test_two_groups_in_two_calls_leave_it_open() -> None:
    elsewhere = TIMED_OUT.replace("line 9", "line 7")
    made = verdict(rank(0, TIMED_OUT), rank(1, elsewhere), rank(2, TIMED_OUT), rank(3, elsewhere))
    assert made.rank is None


def test_a_code_at_the_moment_in_which_others_gave_up_is_not_the_cause() -> None:
    made = verdict(rank(0, "no quorum\n", exit_code=4), rank(1, TIMED_OUT), stopped(2, stack(2, 3)))
    assert (made.code, made.rank) == ("collective", 2)
    alone = verdict(rank(0, "no quorum\n", exit_code=4), rank(1, TIMED_OUT), stopped(2, stack(2, 9, True)))
    assert (alone.code, alone.rank) == ("exit_code", 0)


def test_who_said_it_first_is_named_though_it_ended_last() -> None:
    first = rank(1, raised("ValueError: shard 1 has no labels"), said_at=0.1)
    then = rank(0, raised("AssertionError: 3 answers of 4"), said_at=0.4)
    assert then.ended_at is not None and first.ended_at is not None and then.ended_at < first.ended_at
    assert verdict(then, first).rank == 0, "an end before what was said is taken as the time"
    late = rank(2, raised("AssertionError: 3 answers of 4"), said_at=1.4)
    assert verdict(late, first).rank == 1


def test_at_a_time_limit_the_rank_that_had_left_is_named() -> None:
    made = verdict(
        rank(1, "early stopping\n", exit_code=0),
        stopped(0, stack(0, 9, True)),
        stopped(2, stack(2, 9, True)),
        reason="timeout",
    )
    assert (made.code, made.rank) == ("timeout", 1)
    assert "limits.timeout" not in made.next


def test_ranks_that_all_wait_at_a_time_limit_need_no_more_time() -> None:
    made = verdict(stopped(0, stack(0, 9, True)), stopped(1, stack(1, 7, True)), reason="timeout")
    assert made.rank is None and made.next.startswith("All ranks wait for each other")


def test_a_launcher_that_fails_by_itself_blames_none_of_its_ranks() -> None:
    command = "torchrun --nnodes 2 --nproc-per-node 4 train.py"
    said = "usage: torchrun [-h]\ntorchrun: error: unrecognized arguments: --bogus\n"
    wrong = [rank(number, said, exit_code=2, command=command) for number in (0, 1)]
    assert (verdict(*wrong).code, verdict(*wrong).rank) == ("bad_input", None)
    one = verdict(rank(1, said, exit_code=2, command=command), replace(stopped(0), command=command))
    assert one.rank == 4, "the first rank that the launcher of node 1 was to start"


def test_processes_of_torchrun_on_several_nodes_that_ended_well_are_known() -> None:
    report = (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "Root Cause (first observed failure):\n[0]:\n  rank      : 2 (local_rank: 0)\n  exitcode  : 1 (pid: 7) \n"
    )
    closed = "[rank2]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1437\n"
    command = "torchrun --nnodes 2 --nproc-per-node 2 train.py"
    assert verdict(rank(1, closed + report, command=command)).rank == 3


def test_the_source_of_a_line_shows_that_mpi_waits() -> None:
    barrier = 'muster: "/job/work/train.py" line 12: comm.Barrier()\n'
    waits = [stopped(number, stack(number, 12) + barrier) for number in (0,)]
    made = verdict(*waits, stopped(1, stack(1, 5)), reason="timeout")
    assert made.rank == 1


def test_a_process_of_a_launcher_that_was_ended_is_named_by_its_own_rank() -> None:
    command = "torchrun --nnodes 2 --nproc-per-node 2 train.py"
    closed = "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1437\n"
    report = (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "Root Cause (first observed failure):\n[0]:\n  rank      : {0} (local_rank: 0)\n  exitcode  : 1 (pid: 7) \n"
    )
    own = "".join(f"[rank3]: {line}\n" for line in raised("ValueError: no labels").splitlines())
    first = rank(0, closed + report.format(0), command=command)
    for tail in (own, own + report.format(3)):
        made = verdict(first, replace(stopped(1, tail), command=command))
        assert (made.code, made.rank) == ("exception", 3)


def test_an_exception_that_came_after_the_stop_is_no_cause() -> None:
    refused = raised("ConnectionRefusedError: [Errno 111] Connection refused", source="dial()")
    after = stack(1, 9) + raised("AssertionError", 9, source="assert hear()")
    assert verdict(rank(3, refused), stopped(0, stack(0, 4)), stopped(1, after), stopped(2, after)).rank != 1


def test_who_ended_when_a_rank_gave_up_waiting_is_not_whom_it_waited_for() -> None:
    late = raised("TimeoutError: timed out", source="pipe, _ = door.accept()")
    ended = [rank(number, exit_code=0) for number in (2, 3)]
    made = verdict(rank(1, late), *ended, stopped(0, stack(0, 27)))
    assert made.rank == 0


def test_at_a_time_limit_one_that_left_while_all_others_poll_at_one_line() -> None:
    polling = [stopped(number, stack(number, 8)) for number in (0, 2, 3)]
    made = verdict(rank(1, exit_code=0), *polling, reason="timeout", timeout_s=4.0)
    assert (made.code, made.rank) == ("timeout", 1)


def test_a_world_size_that_stands_in_the_script_is_named_and_no_rank() -> None:
    waited = (
        'Traceback (most recent call last):\n  File "train.py", line 2, in <module>\n'
        '    dist.init_process_group("gloo", rank=rank, world_size=4)\n'
        "torch.distributed.DistStoreError: wait timeout after 8000ms, keys: /default_pg/0//cpu//0/0\n"
    )
    made = verdict(stopped(0), rank(1, waited))
    assert (made.code, made.rank) == ("rendezvous", None)
    assert "the world size is 4 in the script" in made.message and "the job has 2" in made.next
    assert "the world size" not in verdict(stopped(0), rank(1, waited.replace("=4", "=2"))).message


def test_at_a_time_limit_the_last_lines_of_the_process_are_shown_and_for_whom_it_waited() -> None:
    at = stack(0, 14).replace(
        '  File "/job', '  File "/usr/lib/python3.11/multiprocessing/popen_fork.py", line 27 in poll\n  File "/job'
    )
    made = verdict(stopped(0, f"waiting for the workers\n{at}"), reason="timeout", timeout_s=8.0)
    assert (made.code, made.lines) == ("timeout", ("waiting for the workers",))
    assert made.next.startswith("It waited for its child processes to end")


def test_at_a_time_limit_ranks_that_had_not_found_each_other_need_no_longer_one() -> None:
    at = stack(0, 3).replace(
        '  File "/job',
        '  File "/v/site-packages/torch/distributed/rendezvous.py", line 2 in init_process_group\n  File "/job',
    )
    said = "[c10d] TCP client failed to connect/validate to host gpu-01.cluster:6105 - retrying\n"
    made = verdict(
        *(stopped(n, said + at.replace("rank 0", f"rank {n}")) for n in (0, 1)), reason="timeout", timeout_s=8.0
    )
    assert "They looked at gpu-01.cluster:6105." in made.next and "limits.timeout" not in made.next
