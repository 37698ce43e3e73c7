"""The line that says how far a copy is."""

from __future__ import annotations

import io
import sys

import pytest

from muster.cli.commands import files


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_copy_says_how_much_how_fast_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(files.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    meter = files.Meter(0)
    meter.expect(8_000_000)
    now[0] = 102.0
    meter.add(2_000_000)
    assert "2.0 MB of 8.0 MB, 1.0 MB/s, about 6.0s left" in terminal.getvalue()
    meter.end()


def test_a_copy_that_stands_still_shows_no_old_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(files.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    meter = files.Meter(8_000_000)
    now[0] = 102.0
    meter.add(2_000_000)
    for at in (103.0, 107.0, 109.0, 114.0):
        now[0] = at
        meter.begin("large.bin")
    meter.end()
    last = terminal.getvalue().split("\r\x1b[K")[-2]
    assert "MB/s" not in last
    assert last.startswith("2.0 MB of 8.0 MB, nothing for ")


def test_a_name_can_neither_act_on_the_terminal_nor_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    meter = files.Meter(8_000_000)
    meter.begin("outputs/" + "deep/" * 40 + "a\x1b]0;title\x07\nb.txt")
    shown = terminal.getvalue().removeprefix("\r\x1b[K")
    meter.end()
    assert "\x1b" not in shown and "\n" not in shown
    assert shown.endswith("b.txt") and len(shown) < 80
