"""Errors become text and exit codes in one place."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import typer

from muster import errors
from muster.cli.console import Paint, color_wanted
from muster.cli.exits import guarded, report


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.JobError("wrong", "Do this."), 2),
        (errors.NotFound("no run 'x'"), 2),
        (errors.ServerUnavailable("no server"), 3),
        (errors.ProtocolMismatch("too old"), 3),
        (errors.RunFailed("it failed"), 1),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "x.yml"), 2),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(error) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err


def test_a_hint_stands_below_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    report(errors.JobError("epochs: 'x' is no number", "Give a number.\nSuch as 3."))
    assert capsys.readouterr().err == "error: epochs: 'x' is no number\n  Give a number.\n  Such as 3.\n"


def test_a_fault_of_musters_own_is_kept_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert report(ZeroDivisionError("oops")) == 70
    said = capsys.readouterr().err
    assert "ZeroDivisionError: oops" in said
    assert "Traceback" not in said
    (kept,) = (tmp_path / "muster").iterdir()
    assert str(kept) in said
    assert "ZeroDivisionError: oops" in kept.read_text()


def test_a_fault_without_a_place_to_keep_it_is_still_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert report(ValueError("")) == 70
    assert "ValueError" in capsys.readouterr().err


def test_debugging_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MUSTER_DEBUG", "1")
    try:
        raise errors.NotFound("no run")
    except errors.NotFound as error:
        report(error)
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(KeyboardInterrupt()) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_guarded_command_ends_in_an_exit_code() -> None:
    @guarded
    def broken() -> None:
        raise errors.NotFound("no run")

    @guarded
    def decided() -> None:
        raise typer.Exit(7)

    @guarded
    def fine() -> int:
        return 5

    with pytest.raises(typer.Exit) as ended:
        broken()
    assert ended.value.exit_code == 2
    with pytest.raises(typer.Exit) as ended:
        decided()
    assert ended.value.exit_code == 7
    assert fine() == 5


@pytest.mark.parametrize(
    ("terminal", "environment", "wanted"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"CLICOLOR": "0"}, False),
        (True, {"CLICOLOR": "1"}, True),
        (False, {"CLICOLOR": "1"}, False),
        (False, {"CLICOLOR_FORCE": "1"}, True),
        (False, {"CLICOLOR_FORCE": "0"}, False),
        (True, {"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, False),
    ],
)
def test_colour_follows_the_conventions(terminal: bool, environment: dict[str, str], wanted: bool) -> None:
    assert color_wanted(terminal, environment) is wanted


def test_paint_leaves_text_alone_without_colour() -> None:
    assert Paint(False)("x", "red", "bold") == "x"
    assert Paint(False).rank("[rank 0]", 0) == "[rank 0]"
    assert Paint(True)("x", "red") == "\x1b[31mx\x1b[0m"
    assert Paint(True).rank("a", 0) != Paint(True).rank("a", 1)
