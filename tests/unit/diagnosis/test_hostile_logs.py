"""What a rank prints costs its verdict no more than its length: twice as much text is twice the work."""

from __future__ import annotations

import sys

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


def work_of(text: str) -> int:
    """How many calls a verdict takes: the same on every machine."""
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1

    rank = RankEvidence(0, "node-0", 1, None, ended_at=1.0, tail=text)
    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        judge(Evidence(ranks=[rank]))
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("begin", ["", 'Traceback (most recent call last):\n  File "a", line 1, in f\n'])
def test_a_longer_log_is_no_more_than_longer(unit: str, begin: str) -> None:
    half, whole = (work_of(begin + unit * (size // len(unit))) for size in (4 << 10, 8 << 10))
    assert whole < 3 * half + 2000, (half, whole)
