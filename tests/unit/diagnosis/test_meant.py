"""Whom a rank means that failed by itself and speaks of others; where it means nobody, it is itself to blame."""

from __future__ import annotations

import pytest
from tests.unit.diagnosis.test_accused import raised
from tests.unit.diagnosis.test_gangs import rank, stack, stopped, verdict

from muster.diagnosis.differences import odd_in_list
from muster.diagnosis.meant import bare_numbers

LOST = raised("EOFError: the other side hung up")


def own(line: str) -> str:
    return raised(line, source="raise " + line.partition(":")[0])


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: hello of worker 2 has version 'v1', need 'v2'",
        "RuntimeError: preprocessing failed on: 2 (OSError('scan 17 is unreadable'))",
        "ValueError: update 4 from worker 2 is not a number",
        "AssertionError: rank 2 made 9 steps, the plan says 10",
        "ValueError: frame of 1291845632 bytes announced by 2",
    ],
)
def test_a_rank_that_another_one_names_is_to_blame(line: str) -> None:
    made = verdict(rank(0, own(line)), rank(1, LOST), rank(2, LOST), rank(3, LOST))
    assert (made.code, made.rank) == ("exception", 2)
    assert line.partition(": ")[2] in made.message


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: label 2 is out of range",
        "ValueError: vocabulary 0cc9 differs from the one of rank 2",
        "KeyError: 'layer 2 is not in the checkpoint'",
        "RuntimeError: shard 2 not found after 5 s of retries",
        "ValueError: step 2 has no batch",
        "LookupError: augmentation 'cutmix' is not registered",
    ],
)
def test_a_rank_that_names_nobody_is_itself_to_blame(line: str) -> None:
    made = verdict(rank(1, own(line)), rank(0, LOST), stopped(2), rank(3, LOST))
    assert (made.code, made.rank) == ("exception", 1)


@pytest.mark.parametrize(
    "line",
    [
        "lost contact with 2: last beat 4.1 s ago",
        "stale heartbeat: hb/2 is 4.1 s old, for 3 s nobody wrote it",
        "stats/stats_2.json did not appear in 5 s",
    ],
)
def test_a_rank_that_is_only_a_number_is_to_blame_if_it_does_something_else(line: str) -> None:
    away = [stopped(number, stack(number, 3 if number == 2 else 9, number != 2)) for number in (1, 2, 3)]
    assert verdict(rank(0, own(f"RuntimeError: {line}")), *away).rank == 2


def test_what_a_rank_was_told_by_another_is_that_ones_failure() -> None:
    error = "FileNotFoundError: [Errno 2] No such file or directory: 'tokens.bin'"
    told = f"{raised(error)}\nDuring handling of the above exception, another exception occurred:\n\n{LOST}"
    made = verdict(rank(0, own(f"RuntimeError: worker failed: {error}")), rank(1, LOST), rank(2, told))
    assert (made.code, made.rank) == ("exception", 2)
    assert error in made.message


def test_a_number_that_came_twice_is_that_of_the_rank_which_takes_itself_for_another() -> None:
    said = {number: f"I am worker {1 if number == 3 else number} of 4\n{LOST}" for number in (1, 2, 3)}
    ranks = [rank(number, text) for number, text in said.items()]
    assert verdict(rank(0, own("RuntimeError: worker 1 registered twice")), *ranks).rank == 3


def test_the_only_rank_that_warned_is_to_blame_where_all_leave_alike() -> None:
    last = "2026-11-18 09:00:00,000 ERROR aborting, validation has not passed everywhere\n"
    warned = "2026-11-18 09:00:00,000 WARNING 3 of 200 rows have no label\n"
    made = verdict(rank(0, last, exit_code=9), rank(1, warned + last, exit_code=9), rank(2, last, exit_code=9))
    assert made.rank == 1
    assert "3 of 200 rows have no label" in made.message


@pytest.mark.parametrize(
    "line",
    [
        "seeds differ: [1, 1, 4, 1]",
        "epoch lengths 120/120/118/120 must be equal",
        "config mismatch: {0: 'ab', 1: 'ab', 2: 'cd', 3: 'ab'}",
        "weights out of sync: r0=ab12 r1=ab12 r2=ff00 r3=ab12",
        "cannot stack: 1 gave (32, 10); 2 gave (31, 10); 3 gave (32, 10)",
        "unequal numbers of batches: 32, 32, 31, 32",
    ],
)
def test_the_only_other_value_of_a_list_is_found_however_it_is_written(line: str) -> None:
    assert odd_in_list(line, 4) == 2


def test_lists_that_tell_nobody_apart() -> None:
    assert odd_in_list("seeds differ: [1, 2, 3, 4]", 4) is None
    assert odd_in_list("shape [1, 1, 4, 1] is invalid", 4) is None
    assert odd_in_list("seeds differ: [1, 1, 4]", 4) is None


def test_which_numbers_may_be_those_of_ranks() -> None:
    assert bare_numbers("lost contact with 3: last beat 4.1 s ago") == {3}
    assert bare_numbers("stats/stats_2.json did not appear in 5 s") == {2}
    assert bare_numbers("step 3 of 9 took 12:30, magic 0x1f, 5 steps, sample 7") == set()


@pytest.mark.parametrize(
    "line",
    [
        "cannot form a group of 4: {1: 4, 2: 5, 3: 4}",
        "out of order: {'bcast': [2], 'reduce': [0, 1, 3]}",
        "AssertionError: [0.25, 0.25, 0.75, 0.25]",
    ],
)
def test_in_what_a_rank_raises_itself_lists_of_all_ranks_need_no_words(line: str) -> None:
    assert odd_in_list(line, 4, keyed=True) == 2
    assert odd_in_list(line, 4) is None
    assert odd_in_list(line, 5, keyed=True) is None


@pytest.mark.parametrize(
    ("line", "own_line"),
    [
        ("RuntimeError: nothing from south", "this is {}"),
        ("ValueError: south.bin holds no rows", "writing {}.bin"),
        ("RuntimeError: mailbox 40123 is closed", "my mailbox: {}"),
    ],
)
def test_a_name_that_only_one_rank_has_of_its_own_means_that_rank(line: str, own_line: str) -> None:
    names = {1: "north", 2: "40123" if "40123" in line else "south", 3: "west"}
    ranks = [stopped(number, own_line.format(name) + "\n") for number, name in names.items()]
    assert verdict(rank(0, own(line)), *ranks).rank == 2


def test_a_word_that_one_rank_happened_to_say_means_nobody() -> None:
    ranks = [stopped(1, "ready\n"), stopped(2, "rows of the cache are warm\n"), stopped(3, "ready\n")]
    assert verdict(rank(0, own("ValueError: the file holds no rows")), *ranks).rank == 0


def test_what_several_say_they_were_told_and_the_other_one_is_the_cause() -> None:
    told = [rank(number, "run was aborted\n") for number in (0, 1, 2)]
    made = verdict(*told, rank(3, "tokenizer.json has 0 entries\n", exit_code=17))
    assert (made.code, made.rank) == ("exit_code", 3)


def test_who_told_of_a_failure_is_to_blame_for_what_another_rank_then_found() -> None:
    found = raised("ValueError: max() arg is an empty sequence", source="best = max(rows)")
    made = verdict(rank(0, found), stopped(1), stopped(2, "part 2 not written: ZeroDivisionError: division by zero\n"))
    assert (made.code, made.rank) == ("exception", 2)
    went_on = "part 2 not written: ZeroDivisionError: division by zero, trying again\n"
    assert verdict(rank(0, found), stopped(1), stopped(2, went_on)).rank == 0


def test_the_first_ranks_port_belongs_to_it_and_another_one_took_it() -> None:
    taken = raised(
        "OSError: [Errno 98] Address already in use (while attempting to bind on address ('127.0.0.1', 41509))"
    )
    page = "progress page on http://127.0.0.1:41509/\n"
    assert verdict(rank(0, taken), stopped(1), stopped(2, page)).rank == 2
    assert verdict(rank(1, taken), stopped(0), stopped(2, page)).rank == 1
