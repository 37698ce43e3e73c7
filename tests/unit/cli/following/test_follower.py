"""Following a run, and what Ctrl-C means meanwhile."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from muster.cli.following.display import PlainDisplay
from muster.cli.following.follower import Abandoned, Follower, Screen
from muster.cli.following.lines import Merger
from muster.cli.following.state import RunState
from muster.cli.interrupts import Interrupts
from muster.client.sse import StreamItem
from muster.wire.runs import RunView
from muster.wire.states import RunStatus
from muster.wire.stream import LogPiece, Note, RunEnded, StateChanged

Step = StreamItem | Callable[[], None]
View = Callable[..., RunView]


def log(cursor: str, data: bytes, rank: int = 0, attempt: int = 1) -> StreamItem:
    stream = f"user_logs/std_log_process_{rank}.txt"
    return StreamItem(LogPiece.of(attempt, stream, 0, data), cursor)


def state(cursor: str, status: RunStatus, reason: str = "") -> StreamItem:
    return StreamItem(StateChanged(status, 1.0, reason), cursor)


def end(status: RunStatus) -> StreamItem:
    return StreamItem(RunEnded(status, None), "end")


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


class FakeServer:
    """Gives events in order, from after a cursor on; a step may also be something that happens meanwhile."""

    def __init__(self, view: RunView, steps: list[Step]) -> None:
        self.view = view
        self.steps = steps
        self.cancels: list[bool] = []
        self.asked: list[str | None] = []

    def stream(
        self, ref: str, cursor: str | None = None, follow: bool = True, logs: bool = True, metrics: bool = True
    ) -> Iterator[StreamItem]:
        self.asked.append(cursor)
        while self.steps:
            step = self.steps.pop(0)
            if isinstance(step, StreamItem):
                yield step
            else:
                step()

    def run(self, ref: str) -> RunView:
        return self.view

    def cancel(self, ref: str, force: bool = False) -> None:
        self.cancels.append(force)


def follow(server: FakeServer) -> tuple[str, str]:
    out = io.StringIO()
    screen = Screen(PlainDisplay(out), RunState(), Merger())
    with Interrupts() as interrupts:
        status = Follower(server, server.view, screen, interrupts).until_end()
    return status, out.getvalue()


def test_lines_go_to_standard_output_and_states_to_standard_error(
    run_view: View, capsys: pytest.CaptureFixture[str]
) -> None:
    server = FakeServer(
        run_view(),
        [
            state("1", "Queued", "waits for 1 node"),
            state("2", "Running"),
            log("3", b"one\ntw"),
            log("4", b"hello\n", rank=1),
            log("5", b"o\nthree"),
            StreamItem(Note("warning", "mind this", 1.0), "6"),
            end("Completed"),
        ],
    )
    status, out = follow(server)
    assert status == "Completed"
    assert out == "[rank 0] one\n[rank 1] hello\n[rank 0] two\n[rank 0] three\n"
    assert capsys.readouterr().err.splitlines() == [
        "Queued: waits for 1 node",
        "Running",
        "warning: mind this",
        "Completed",
    ]


def test_the_first_ctrl_c_cancels_and_following_goes_on_where_it_was(
    run_view: View, capsys: pytest.CaptureFixture[str]
) -> None:
    server = FakeServer(run_view(), [log("1", b"one\n"), press_ctrl_c, log("2", b"two\n"), end("Canceled")])
    status, out = follow(server)
    assert (status, out) == ("Canceled", "[rank 0] one\n[rank 0] two\n")
    assert server.cancels == [False]
    assert server.asked == [None, "1"]
    assert "Ctrl-C again kills" in capsys.readouterr().err


def test_the_second_ctrl_c_kills(run_view: View) -> None:
    server = FakeServer(run_view(), [press_ctrl_c, log("1", b"one\n"), press_ctrl_c, end("Canceled")])
    status, _ = follow(server)
    assert status == "Canceled"
    assert server.cancels == [False, True]


def test_the_third_ctrl_c_stops_waiting(run_view: View) -> None:
    server = FakeServer(run_view(), [press_ctrl_c, press_ctrl_c, press_ctrl_c])
    with pytest.raises(Abandoned):
        follow(server)
    assert server.cancels == [False, True]


def test_ctrl_c_while_lines_are_printed_breaks_no_line(run_view: View) -> None:
    class Pressing(io.StringIO):
        def write(self, text: str) -> int:
            press_ctrl_c()
            return super().write(text)

    out = Pressing()
    server = FakeServer(run_view(), [log("1", b"one\n"), end("Canceled")])
    screen = Screen(PlainDisplay(out), RunState(), Merger())
    with Interrupts() as interrupts:
        Follower(server, server.view, screen, interrupts).until_end()
    assert out.getvalue() == "[rank 0] one\n"
    assert server.cancels == [False]


def test_the_handlers_of_signals_are_put_back(run_view: View) -> None:
    before = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    follow(FakeServer(run_view(), [end("Completed")]))
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_stream_that_just_stops_is_no_endless_loop(run_view: View) -> None:
    assert follow(FakeServer(run_view(status="Failed"), []))[0] == "Failed"


def test_a_further_attempt_does_not_continue_a_line_of_the_earlier_one(
    run_view: View, capsys: pytest.CaptureFixture[str]
) -> None:
    server = FakeServer(run_view(), [log("1", b"cut o"), log("2", b"again\n", attempt=2), end("Completed")])
    assert follow(server)[1] == "[rank 0] cut o\n[rank 0] again\n"
    assert "attempt 2" in capsys.readouterr().err
