"""What a rank prints costs its verdict no more than its length: twice as much text is twice the work."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from muster.diagnosis.verdict import judge
from muster.wire.verdicts import Evidence, RankEvidence

UNITS = [
    '  File "x", line 1, in f\n',
    '  File "x", line 1\n',
    "Traceback (most recent call last):\n",
    "RuntimeError: ",
    "[",
    "(",
    "a",
    " ",
    "\n",
    "\t",
    ": ",
    "Error\n",
    "Exception in thread\n",
    "╭─ Traceback (most recent call last) ─╮\n",
    "│ x:1 in f\n",
    "-" * 70 + "\n",
    "terminate called\n",
    "panic: x\n",
    "[rank0]: ",
    "  | ",
    "+-+ ",
    "Caused by: x\n",
    "\tat a.b(C.java:1)\n",
    "During handling of the above exception, another exception occurred:\n",
    "Current thread 0x1 (most recent call first):\n",
]


LOST = """Traceback (most recent call last):
  File "train.py", line 9, in <module>
    dist.all_reduce(x)
RuntimeError: [/x/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:2000
"""
RAISED = 'Traceback (most recent call last):\n  File "train.py", line 5, in check\nRuntimeError: 12 is too large\n'


def work_of(*ranks: RankEvidence) -> int:
    """How many calls a verdict takes: the same on every machine."""
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        judge(Evidence(ranks=list(ranks)))
    finally:
        sys.setprofile(before)
    return count


def rank(number: int, text: str, code: int | None = 1, **how: Any) -> RankEvidence:
    return RankEvidence(number, "node-0", code, None, ended_at=1.0 + number, tail=text, **how)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("begin", ["", 'Traceback (most recent call last):\n  File "a", line 1, in f\n'])
def test_a_longer_log_is_no_more_than_longer(unit: str, begin: str) -> None:
    half, whole = (work_of(rank(0, begin + unit * (size // len(unit)))) for size in (4 << 10, 8 << 10))
    assert whole < 3 * half + 2000, (half, whole)


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param((RAISED, 1), id="raises"),
        pytest.param(("", 3), id="leaves with a code"),
        pytest.param(("", 0), id="ends well"),
        pytest.param((LOST, 1), id="fails like the others"),
    ],
)
def test_a_larger_gang_is_no_more_than_larger(odd: tuple[str, int]) -> None:
    """Of more ranks than the ranking looks at."""
    half, whole = (
        work_of(
            *(
                rank(n, "step 1\nstep 2\n" * 10 + (odd[0] if n == 7 else LOST), odd[1] if n == 7 else 1)
                for n in range(count)
            )
        )
        for count in (80, 160)
    )
    assert whole < 2.6 * half, (half, whole)
