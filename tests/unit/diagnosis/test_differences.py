"""Ranks that are told apart by what only one of them said: a value, a group, a line of its own, an exception's name."""

from __future__ import annotations

import pytest
from tests.unit.diagnosis.test_accused import doing, raised, steps
from tests.unit.diagnosis.test_gangs import TIMED_OUT, rank, stopped, verdict

NCCL = """Traceback (most recent call last):
  File "train.py", line {line}, in <module>
    dist.{call}(x)
torch.distributed.DistBackendError: NCCL communicator was aborted on rank {rank}.
"""


@pytest.mark.parametrize(
    ("said", "odd"),
    [
        (["rank 0: chief is 0", "rank 1: chief is 0", "rank 2: chief is 0", "rank 3: chief is 2"], 3),
        (["[0] seed=7 tp=2", "[1] seed=7 tp=4", "[2] seed=7 tp=2"], 1),
        (["0 of 4: hidden 512", "1 of 4: hidden 768", "2 of 4: hidden 512", "3 of 4: hidden 512"], 1),
        (["rank 0 in group (0, 1)", "rank 1 in group (0, 1)", "rank 2 in group (0, 1)", "rank 3 in group (2, 3)"], 2),
        (["stage 0 swaps with 1", "stage 1 swaps with 0", "stage 2 swaps with 3", "stage 3 swaps with 1"], 3),
        (["rank 0: next is 1", "rank 1: next is 2", "rank 2: next is 1", "rank 3: next is 0"], 2),
    ],
)
def test_the_only_rank_with_another_value_in_the_same_words_is_named(said: list[str], odd: int) -> None:
    made = verdict(*(rank(number, f"{line}\n{TIMED_OUT}") for number, line in enumerate(said)))
    assert (made.code, made.rank, made.confidence) == ("collective", odd, "likely")
    assert said[odd] in made.message
    assert said[odd] in made.next


def test_values_that_differ_everywhere_name_nobody() -> None:
    ranks = [rank(number, f"rank {number}: {1000 + 37 * number} rows\n{TIMED_OUT}") for number in range(4)]
    assert verdict(*ranks).rank is None


def test_at_a_time_limit_another_root_is_named_before_one_that_only_came_further() -> None:
    call = "weights = comm.bcast(weights, root=root)"
    further = doing(1, "comm.barrier()").replace("line 5", "line 8")
    made = verdict(
        stopped(0, f"rank 0: root is 0\n{doing(0, call)}"),
        stopped(1, f"rank 1: root is 0\nrank 1: has the weights\n{further}"),
        stopped(2, f"rank 2: root is 2\n{doing(2, call)}"),
        reason="timeout",
        timeout_s=7.0,
    )
    assert (made.code, made.rank) == ("timeout", 2)
    assert "root is 2" in made.message


def test_of_two_ranks_in_different_calls_the_one_that_had_gone_another_way_is_named() -> None:
    odd = steps(1, 3) + "rank 1: overflow in the gradients, scale is now 512\n"
    made = verdict(
        rank(0, steps(0, 3) + NCCL.format(line=12, call="all_reduce", rank=0)),
        rank(1, odd + NCCL.format(line=10, call="broadcast", rank=1)),
    )
    assert (made.code, made.rank) == ("collective", 1)
    assert "it alone said: rank 1: overflow in the gradients" in made.message
    assert "train.py line 10" in made.next


def test_the_first_rank_that_speaks_for_all_is_not_blamed_for_it() -> None:
    ranks = [rank(number, steps(number, 3) + TIMED_OUT) for number in (1,)]
    made = verdict(rank(0, steps(0, 3) + "model has 7 M parameters\n" + TIMED_OUT), *ranks)
    assert made.rank is None


def test_what_a_blamed_rank_alone_had_said_is_in_the_message() -> None:
    skipping = "step 1: loss 0.2\nstep 2: no labels, batch skipped\n"
    further = TIMED_OUT.replace("line 9", "line 14")
    made = verdict(
        rank(0, f"step 1: loss 0.1\n{TIMED_OUT}"),
        rank(1, skipping + further),
        rank(2, f"step 1: loss 0.3\n{TIMED_OUT}"),
    )
    assert made.rank == 1
    assert "step 2: no labels, batch skipped" in made.message


def test_a_rank_that_others_name_is_judged_by_its_own_exception() -> None:
    own = raised("KeyError: 'jp'", "return TABLE[code]", "weight")
    made = verdict(rank(0, "chief: worker 2 failed: KeyError('jp')\n"), stopped(1), stopped(2, own))
    assert (made.code, made.rank) == ("exception", 2)
    assert "KeyError: 'jp'" in made.message
    assert "in weight" in made.next


@pytest.mark.parametrize("reason", ["rank_failed", "timeout"])
def test_an_exception_that_is_only_named_in_a_record_explains_why_a_rank_was_away(reason: str) -> None:
    away = "2 ERROR advance failed: KeyError('energy')\n2 INFO saving before leaving\n" + doing(2, "time.sleep(20)")
    ranks = [rank(0, TIMED_OUT), rank(1, TIMED_OUT)]
    if reason == "timeout":
        ranks = [stopped(number, doing(number, "comm.barrier()").replace("line 5", "line 9")) for number in range(2)]
    made = verdict(*ranks, stopped(2, away), reason=reason)
    assert (made.code, made.rank) == ("exception", 2)
    assert "KeyError('energy')" in made.message


def test_one_that_was_handled_does_not() -> None:
    away = "2 WARNING KeyError('energy'), going on without it\n" + doing(2, "time.sleep(20)")
    made = verdict(rank(0, TIMED_OUT), rank(1, TIMED_OUT), stopped(2, away))
    assert (made.code, made.rank) == ("collective", 2)


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("/index/ready", "collective"),
        ("/default_pg/0//plan_of_2", "collective"),
        ("/default_pg/0//cpu//0/2", "rendezvous"),
        ("/default_pg/0//cuda//0/1", "rendezvous"),
    ],
)
def test_a_key_of_the_scripts_own_is_no_rendezvous(key: str, code: str) -> None:
    line = f"torch.distributed.DistStoreError: wait timeout after 5000ms, keys: {key}"
    made = verdict(rank(1, raised(line, "store.wait([key])")), stopped(2, doing(2, "time.sleep(60)")))
    assert (made.code, made.rank) == (code, 2)


@pytest.mark.parametrize(
    "said",
    ["head: task 2 reported KeyError('jp')", "head: somebody sent KeyError('jp')", "KeyError: 'jp' (from 2)"],
)
def test_a_rank_that_leaves_with_anothers_exception_on_its_lips_is_not_to_blame(said: str) -> None:
    own = raised("KeyError: 'jp'", "return TABLE[code]", "weight")
    made = verdict(rank(0, f"{said}\n", exit_code=3), stopped(1), stopped(2, own))
    assert (made.code, made.rank) == ("exception", 2)


def test_lines_that_children_of_torchrun_begin_with_their_rank_are_theirs() -> None:
    def child(number: int, said: str) -> str:
        prefixed = "".join(f"[rank{number}]: {line}\n" for line in TIMED_OUT.rstrip().split("\n"))
        return f"rank {number}: {said}\n{prefixed}"

    report = (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        + "".join(
            f"[{n}]:\n  rank      : {n} (local_rank: {n})\n  exitcode  : 1 (pid: {n + 70})\n  error_file: <N/A>\n"
            for n in range(1, 4)
        )
        + "Root Cause (first observed failure):\n[0]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 70)\n"
    )
    text = "".join(child(n, "group [2, 3]" if n > 1 else "group [0, 1]") for n in range(3)) + child(3, "group [0, 1]")
    made = verdict(rank(0, text + report, command="torchrun --nproc-per-node 4 train.py"))
    assert (made.code, made.rank) == ("collective", 3)
