"""Logs are parsed once: exceptions in every form, what surrounds them, and the stacks of ranks that were stopped."""

from __future__ import annotations

import importlib
import pkgutil
import re
import re._parser as parser
from collections.abc import Iterator
from types import ModuleType

import pytest

import muster.diagnosis
from muster.diagnosis import causes, rules
from muster.diagnosis.advice import well_known
from muster.diagnosis.log import read
from muster.diagnosis.text import bounded, lines_of

PYTHON = 'Traceback (most recent call last):\n  File "train.py", line 3, in step\n    go()\n'


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        (PYTHON + "ValueError: no\n", "ValueError: no"),
        (PYTHON + "AssertionError\n", "AssertionError"),
        (PYTHON + "RuntimeError: \n\n        An attempt has been made\n", "RuntimeError: An attempt has been made"),
        (f"\x1b[31m{PYTHON}KeyError: 'x'\x1b[0m\n", "KeyError: 'x'"),
        ("\r 97%|####  | 97/100 [00:01]" + PYTHON + "KeyError: 'x'\n", "KeyError: 'x'"),
        ('{"event": "Traceback (most recent call last):\\n  File \\"a.py\\", line 1\\nOSError: x\\n"}', "OSError: x"),
        ('  File "a.py", line 2\n    x = (\n        ^\nSyntaxError: invalid syntax\n', "SyntaxError: invalid syntax"),
        ("╭─── Traceback (most recent call last) ───╮\n│ a.py:2 in f │\n╰────╯\nValueError: no\n", "ValueError: no"),
        ("KeyError      Traceback (most recent call last)\nFile a.py:2, in f()\n----> 2 x\n\nKeyError: 'a'\n",
         "KeyError: 'a'"),
        ("Exception in thread \"main\" java.lang.Error: no\n\tat a.B.c(B.java:3)\n", "java.lang.Error: no"),
        ("thread 'main' panicked at src/main.rs:2:5:\nindex out of bounds\n", "index out of bounds"),
        ("Error: no shards\n    at load (/a/main.js:2:9)\n", "Error: no shards"),
        ("terminate called after throwing an instance of 'std::logic_error'\n  what():  no\n", "std::logic_error: no"),
    ],
)  # fmt: skip
def test_an_exception_is_found_in_every_form(printed: str, line: str) -> None:
    assert [found.line for found in read(f"epoch 1\n{printed}").raised] == [line]


def test_a_chain_is_one_exception_with_its_causes() -> None:
    chain = (
        f"{PYTHON}KeyError: 'lr'\n\nThe above exception was the direct cause of the following exception:\n\n{PYTHON}"
    )
    (found,) = read(chain + "RuntimeError: no configuration\n").raised
    assert (found.line, found.causes[0].line) == ("RuntimeError: no configuration", "KeyError: 'lr'")
    assert causes.headline_of(found) == "RuntimeError: no configuration (caused by KeyError: 'lr')"


@pytest.mark.parametrize(
    ("before", "setting"),
    [
        ("Exception in thread Thread-1 (feed):", "thread"),
        ("Process SpawnProcess-1:", "process"),
        ("Exception ignored in: <function A.__del__ at 0x7f>", "ignored"),
        ("2026-11-16 10:00:00 ERROR trainer: the cache is gone", "logged"),
        ("epoch 3", "main"),
    ],
)
def test_what_stands_before_it_says_whose_exception_it_is(before: str, setting: str) -> None:
    assert read(f"{before}\n{PYTHON}ValueError: no\n").raised[0].setting == setting


def test_the_stack_of_a_stopped_rank_is_no_part_of_what_it_printed() -> None:
    found = read(
        "epoch 1\nmuster: where rank 2 (process 7) was when it was stopped:\n"
        'Thread 0x00007f1 (most recent call first):\n  File "/usr/lib/python3.11/threading.py", line 3 in wait\n\n'
        'Current thread 0x00007f0 (most recent call first):\n  File "train.py", line 9 in load\n'
        '  File "train.py", line 12 in <module>\n'
    )
    assert found.lines == ("epoch 1",)
    assert [(stack.rank, stack.own.line if stack.own else 0) for stack in found.stacks] == [(2, 9)]


def test_a_line_without_end_is_cut_and_the_rest_of_the_log_is_kept() -> None:
    shown = lines_of(bounded("first\n" + "x" * 10_000_000 + "\nlast"))
    assert (shown[0], shown[-1]) == ("first", "last")
    assert max(map(len, shown)) < 2000


def test_a_log_of_a_million_lines_keeps_its_beginning_and_its_end() -> None:
    shown = bounded("first\n" + "step\n" * 1_000_000 + "last")
    assert shown.startswith("first\n") and shown.endswith("last")
    assert shown.count("\n") < 20_000


def patterns(module: ModuleType) -> Iterator[re.Pattern[str]]:
    for value in vars(module).values():
        yield from (item for item in (value if isinstance(value, tuple) else (value,)) if isinstance(item, re.Pattern))


def repeats_a_repetition(parsed: object, inside: bool = False) -> bool:
    """Whether an unbounded repetition holds another one, which a hostile line could make take for ever."""
    for operation, argument in parsed:  # type: ignore[attr-defined]
        if operation in (parser.MAX_REPEAT, parser.MIN_REPEAT):
            endless = argument[1] is parser.MAXREPEAT
            starts_apart = _begins_with_a_sign(argument[2])
            if endless and inside and not starts_apart:
                return True
            if repeats_a_repetition(argument[2], inside or (endless and not starts_apart)):
                return True
        elif operation is parser.SUBPATTERN:
            if repeats_a_repetition(argument[3], inside):
                return True
        elif operation is parser.BRANCH and any(repeats_a_repetition(branch, inside) for branch in argument[1]):
            return True
    return False


def _begins_with_a_sign(parsed: object) -> bool:
    """A repeated part that begins or ends with a fixed character can be cut in one way only."""
    parts = list(parsed)  # type: ignore[call-overload]
    return len(parts) > 1 and (parts[0][0] is parser.LITERAL or parts[-1][0] is parser.LITERAL)


def test_no_pattern_repeats_a_repetition() -> None:
    names = [found.name for found in pkgutil.walk_packages(muster.diagnosis.__path__, "muster.diagnosis.")]
    found = [pattern for name in names for pattern in patterns(importlib.import_module(name))]
    found += [rule.pattern for rule in rules.RULES]
    found += [pattern for pattern, _ in well_known.KNOWN]
    assert len(found) > 200
    assert [item.pattern for item in found if repeats_a_repetition(parser.parse(item.pattern, item.flags))] == []


def test_a_stack_into_which_another_thread_printed_is_one_stack() -> None:
    (found,) = read(
        "Exception in thread Thread-1 (feed):\nTraceback (most recent call last):\n"
        '  File "/usr/lib/python3.11/threading.py", line 1045, in _bootstrap\ngot 0\ngot 1\ngot 2\n    self.run()\n'
        '  File "/job/work/job.py", line 6, in feed\n    raise KeyError("label")\nKeyError: \'label\'\n'
    ).raised
    assert (found.line, found.setting, found.frames[-1].function) == ("KeyError: 'label'", "thread", "feed")


def test_what_another_process_prints_below_the_header_of_a_traceback_is_no_end_of_it() -> None:
    text = (
        "rank 2 start\nTraceback (most recent call last):\nrank 1 start\n"
        '  File "train.py", line 6, in <module>\n    print(config["b"])\nKeyError: \'b\'\nrank 0 start\n'
    )
    assert [raised.line for raised in read(text).raised] == ["KeyError: 'b'"]


def test_what_muster_puts_beside_a_script_is_no_code_of_the_user() -> None:
    own = "/w/.muster/nodes/local-0/runtime/0.1.0/muster/runtime/parts/datawait.py"
    text = (
        'Traceback (most recent call last):\n  File "train.py", line 6, in <module>\n    for batch in loader:\n'
        f'  File "{own}", line 116, in __next__\n    return take(self)\nRuntimeError: stack expects equal sizes\n'
    )
    (raised,) = read(text).raised
    assert [frame.of_library for frame in raised.frames] == [False, True]
