"""What is typed on the first day, and what stands on the screen then, at three widths."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.terminal.conftest import Desk, still
from tests.sites.screens import golden

SCREENS = Path(__file__).parent / "screens"
TYPED = {
    "ps": ("ps",),
    "ps-columns": ("ps", "--columns", "run,status,loss,tag.team"),
    "show-broken": ("show", "broken"),
    "metrics": ("metrics", "first"),
    "metrics-loss": ("metrics", "first", "loss"),
    "rm-ambiguous": ("rm", "train", "--yes"),
    "cancel-ambiguous": ("cancel", "train"),
    "download-ambiguous": ("download", "train"),
    "show-unknown": ("show", "nothing"),
    "metrics-unknown": ("metrics", "first", "lsos"),
    "command-of-another-tool": ("list",),
    "ps-unknown-column": ("ps", "--columns", "run,lss"),
}


# Short messages are the same at every width; tables and paragraphs are not. Where one with a folder in it breaks
# depends on the folder, so it gets room enough.
WIDTHS = {"show-unknown": (200,)} | dict.fromkeys(("ps", "show-broken", "ps-columns"), (80, 120, 200))
CASES = [(name, width) for name in TYPED for width in WIDTHS.get(name, (80,))]


@pytest.mark.parametrize(("name", "width"), CASES)
def test_the_screen_is_the_one_on_file(desk: Desk, name: str, width: int) -> None:
    screen = desk.type(*TYPED[name], columns=width)
    if name.startswith(("ps", "show-b", "metrics")) and "unknown" not in name:
        assert max(map(len, screen.lines)) <= width
    golden(SCREENS / f"{name}-{width}.txt", [*still(screen, desk.folder), f"(exit code {screen.code})"])


def test_a_diverged_run_says_so_at_its_end(desk: Desk) -> None:
    screen = desk.type("run", "nan.py")
    assert screen.code == 0
    assert "is not a number since step 2 (NaN)" in screen.text
    assert "loss     NaN: the training diverged" in screen.text


def test_a_failed_run_shows_its_traceback_once_with_the_users_own_paths(desk: Desk) -> None:
    screen = desk.type("run", "fails.py")
    assert screen.code == 1
    assert screen.text.count("Traceback (most recent call last)") == 1
    assert 'File "fails.py", line 5, in <module>' in screen.text
    assert "--procs 1" in screen.text
    assert ".muster" not in screen.text
