"""How far `muster data imagenet` is, where no line can be drawn again."""

from __future__ import annotations

import io
import sys

import pytest

from muster.cli.commands import imagenet


def test_a_log_gets_a_plain_line_every_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(imagenet.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    stages = imagenet.Stages()
    told = stages("packing train", 8_000_000)
    for _ in range(5):
        now[0] += 10
        told(1_000_000)
    told = stages("packing val", 0)
    stages.end()
    assert log.getvalue().splitlines() == [
        "packing train: 8.0 MB",
        "packing train: 3.0 MB of 8.0 MB, 100 kB/s, about 50s left",
        "packing val: nothing to do",
    ]
