"""A frame that the server will never take does not hold up the rest of a node's deliveries."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest

from muster.agent.ship.shipper import Shipper
from muster.errors import AccessDenied, JobError, MusterError, ServerUnavailable
from muster.paths import AttemptPaths
from muster.wire.node.agents import (
    AttemptKey,
    Chunk,
    Delivered,
    DeliveryAnswer,
    Event,
    EventData,
    Heartbeat,
    Noted,
    Prepared,
    Started,
    TimedOut,
    decode,
)

KEY = ("run", 1)


class Server:
    """Takes deliveries as the server does, but never a certain stream or kind of event."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.bytes: dict[str, bytes] = {}
        self.trouble: MusterError | None = None

    def deliver(self, body: bytes) -> DeliveryAnswer:
        if self.trouble:
            raise self.trouble
        frames = list(decode(BytesIO(body)))
        for frame in frames:
            if isinstance(frame, Chunk) and "bad" in frame.stream:
                raise JobError("the name leaves its folder")
            if isinstance(frame, Event) and isinstance(frame.data, TimedOut):
                raise JobError("the delivery is malformed")
        lengths = []
        for frame in frames:
            if isinstance(frame, Chunk):
                self.bytes[frame.stream] = self.bytes.get(frame.stream, b"") + frame.data
                lengths.append((*KEY, frame.stream, len(self.bytes[frame.stream])))
            elif isinstance(frame, Event):
                self.events.append(frame)
        return DeliveryAnswer(tuple(lengths))

    def close(self) -> None:
        return None


class Owner:
    """Wants nothing of a shipper."""

    def heartbeat(self) -> Heartbeat:
        return Heartbeat()

    def delivered(self, key: AttemptKey) -> None: ...

    def forget(self, key: AttemptKey) -> None: ...

    def introduce(self) -> None: ...


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def shipper(server: Server, tmp_path: Path) -> Shipper:
    for name in ("user_logs/a.txt", "user_logs/bad.txt", "user_logs/c.txt"):
        path = tmp_path / "streams" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    made = Shipper(server)  # type: ignore[arg-type]
    made._owner = Owner()
    made.track(KEY, AttemptPaths(tmp_path), 1 << 20)
    return made


def tell(shipper: Shipper, data: EventData) -> None:
    shipper.tell(Event(*KEY, 0.0, data))
    shipper._take(0.0)


def test_what_is_refused_for_good_is_left_out_with_a_note_and_the_rest_arrives(
    shipper: Shipper, server: Server
) -> None:
    for data in (Prepared(), TimedOut(), Started()):
        tell(shipper, data)
    shipper._pass()
    assert server.bytes == {"user_logs/a.txt": b"user_logs/a.txt", "user_logs/c.txt": b"user_logs/c.txt"}
    assert [event.kind for event in server.events] == ["prepared", "started"]
    shipper.finish(KEY)
    tell(shipper, Delivered())
    shipper._pass()
    kinds = [event.kind for event in server.events]
    assert kinds.count("noted") == 2
    notes = [event.data.text for event in server.events if isinstance(event.data, Noted)]
    assert any("17 bytes of user_logs/bad.txt" in text for text in notes)
    assert any("an event (timed_out)" in text for text in notes)
    for _ in range(3):
        shipper._pass()
    assert server.events[-1].kind == "delivered"


@pytest.mark.parametrize("trouble", [ServerUnavailable("away"), AccessDenied("not yours"), MusterError("fault")])
def test_what_fails_for_now_is_kept_and_sent_again(shipper: Shipper, server: Server, trouble: MusterError) -> None:
    server.trouble = trouble
    tell(shipper, Prepared())
    shipper._pass()
    assert not server.events
    server.trouble = None
    shipper._pass()
    assert [event.kind for event in server.events] == ["prepared"]
    assert "user_logs/a.txt" in server.bytes
