"""Following a run, and what Ctrl-C means meanwhile."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from muster.cli.following.display import PlainDisplay, TailDisplay
from muster.cli.following.follower import Abandoned, Follower, Interrupts, Screen
from muster.cli.following.lines import Merger
from muster.cli.following.state import RunState
from muster.client.sse import StreamEvent

Step = StreamEvent | Callable[[], None]


def log(cursor: str, data: bytes, rank: int = 0, attempt: int = 1) -> StreamEvent:
    stream = f"user_logs/std_log_process_{rank}.txt"
    return StreamEvent("log", cursor, {"attempt": attempt, "stream": stream, "offset": 0, "bytes": data})


def state(cursor: str, status: str, reason: str = "") -> StreamEvent:
    return StreamEvent("state", cursor, {"status": status, "reason": reason, "at": 1.0})


def end(status: str) -> StreamEvent:
    return StreamEvent("end", "end", {"status": status, "verdict": None})


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


class FakeServer:
    """Gives events in order, from after a cursor on; a step may also be something that happens meanwhile."""

    def __init__(self, steps: list[Step], final: str = "Completed") -> None:
        self.steps = steps
        self.final = final
        self.cancels: list[bool] = []
        self.asked: list[str | None] = []

    def stream(
        self, ref: str, cursor: str | None = None, follow: bool = True, logs: bool = True, metrics: bool = True
    ) -> Iterator[StreamEvent]:
        self.asked.append(cursor)
        while self.steps:
            step = self.steps.pop(0)
            if isinstance(step, StreamEvent):
                yield step
            else:
                step()

    def run(self, ref: str) -> dict[str, Any]:
        return {"id": ref, "status": self.final}

    def cancel(self, ref: str, force: bool = False) -> None:
        self.cancels.append(force)


def follow(server: FakeServer) -> tuple[str, str]:
    out = io.StringIO()
    screen = Screen(PlainDisplay(out), RunState(), Merger())
    with Interrupts() as interrupts:
        status = Follower(server, {"id": "r1", "name": "otter"}, screen, interrupts).until_end()
    return status, out.getvalue()


def test_lines_go_to_standard_output_and_states_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    server = FakeServer(
        [
            state("1", "Queued", "waits for 1 node"),
            state("2", "Running"),
            log("3", b"one\ntw"),
            log("4", b"hello\n", rank=1),
            log("5", b"o\nthree"),
            StreamEvent("note", "6", {"text": "mind this", "level": "warning", "at": 1.0}),
            end("Completed"),
        ]
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


def test_the_first_ctrl_c_cancels_and_following_goes_on_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    server = FakeServer([log("1", b"one\n"), press_ctrl_c, log("2", b"two\n"), end("Canceled")])
    status, out = follow(server)
    assert (status, out) == ("Canceled", "[rank 0] one\n[rank 0] two\n")
    assert server.cancels == [False]
    assert server.asked == [None, "1"]
    assert "Ctrl-C again kills" in capsys.readouterr().err


def test_the_second_ctrl_c_kills() -> None:
    server = FakeServer([press_ctrl_c, log("1", b"one\n"), press_ctrl_c, end("Canceled")])
    status, _ = follow(server)
    assert status == "Canceled"
    assert server.cancels == [False, True]


def test_the_third_ctrl_c_stops_waiting() -> None:
    server = FakeServer([press_ctrl_c, press_ctrl_c, press_ctrl_c])
    with pytest.raises(Abandoned):
        follow(server)
    assert server.cancels == [False, True]


def test_ctrl_c_while_lines_are_printed_breaks_no_line() -> None:
    class Pressing(io.StringIO):
        def write(self, text: str) -> int:
            press_ctrl_c()
            return super().write(text)

    out = Pressing()
    server = FakeServer([log("1", b"one\n"), end("Canceled")])
    screen = Screen(PlainDisplay(out), RunState(), Merger())
    with Interrupts() as interrupts:
        Follower(server, {"id": "r1", "name": None}, screen, interrupts).until_end()
    assert out.getvalue() == "[rank 0] one\n"
    assert server.cancels == [False]


def test_the_handlers_of_signals_are_put_back() -> None:
    before = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    follow(FakeServer([end("Completed")]))
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_stream_that_just_stops_is_no_endless_loop() -> None:
    assert follow(FakeServer([], final="Failed"))[0] == "Failed"


def test_a_further_attempt_does_not_continue_a_line_of_the_earlier_one(capsys: pytest.CaptureFixture[str]) -> None:
    server = FakeServer([log("1", b"cut o"), log("2", b"again\n", attempt=2), end("Completed")])
    assert follow(server)[1] == "[rank 0] cut o\n[rank 0] again\n"
    assert "attempt 2" in capsys.readouterr().err


def test_the_last_lines_can_be_kept_instead_of_shown() -> None:
    kept = TailDisplay(io.StringIO(), 2)
    screen = Screen(kept, RunState(), Merger())
    screen.show(log("1", b"a\nb\nc\nd"))
    screen.finish()
    assert [line.text for line in kept.kept] == ["c", "d"]
