"""Ctrl-C between the moment in which a run is submitted and the one in which it is followed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from muster.cli.interrupts import submitted
from muster.wire.runs import RunView

View = Callable[..., RunView]


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


class Server:
    def __init__(self) -> None:
        self.cancelled: list[str] = []

    def cancel(self, ref: str, force: bool = False) -> None:
        self.cancelled.append(ref)


def test_without_ctrl_c_the_run_is_handed_on(run_view: View) -> None:
    server, seen = Server(), []
    before = signal.getsignal(signal.SIGINT)
    assert submitted(server, run_view, seen.append) == run_view()
    assert seen == [run_view()]
    assert server.cancelled == []
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_while_the_server_answers_cancels_the_run_that_it_made(
    run_view: View, capsys: pytest.CaptureFixture[str]
) -> None:
    server, seen = Server(), []

    def ask() -> RunView:
        press_ctrl_c()
        return run_view()

    with pytest.raises(KeyboardInterrupt):
        submitted(server, ask, seen.append)
    assert server.cancelled == [run_view().id]
    assert seen == []
    assert "is being cancelled" in capsys.readouterr().err


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_before_anybody_follows_the_run_cancels_it(run_view: View, presses: int) -> None:
    server = Server()
    with pytest.raises(KeyboardInterrupt):
        submitted(server, run_view, lambda view: [press_ctrl_c() for _ in range(presses)])
    assert server.cancelled == [run_view().id]


def test_a_second_ctrl_c_does_not_wait_for_a_server_that_does_not_answer(
    run_view: View, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server()

    def ask() -> RunView:
        press_ctrl_c()
        press_ctrl_c()
        raise AssertionError("it waited")

    with pytest.raises(KeyboardInterrupt):
        submitted(server, ask, lambda view: None)
    assert server.cancelled == []
    assert "`muster ps` shows whether the run was made" in capsys.readouterr().err


def test_ctrl_c_while_the_command_line_is_loaded_leaves_no_traceback() -> None:
    code = (
        "import signal, muster.__main__ as command\n"
        "command.import_module = lambda name: signal.raise_signal(signal.SIGINT)\n"
        "command.main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")
