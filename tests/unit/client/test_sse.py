"""Server-sent events survive any cut of their bytes."""

from __future__ import annotations

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from muster.client.sse import SseParser, StreamEvent


def wire(events: list[StreamEvent]) -> bytes:
    parts = []
    for event in events:
        data = dict(event.data)
        if event.event == "log":
            data["base64"] = base64.b64encode(data.pop("bytes")).decode()
        parts.append(f"id: {event.cursor}\nevent: {event.event}\ndata: {json.dumps(data)}\n\n".encode())
    return b": keepalive\n\n".join(parts)


EVENTS = st.lists(
    st.one_of(
        st.builds(
            StreamEvent,
            st.just("log"),
            st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True),
            st.builds(dict, bytes=st.binary()),
        ),
        st.builds(
            StreamEvent,
            st.just("note"),
            st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True),
            st.builds(dict, text=st.text()),
        ),
    ),
    max_size=6,
)


@given(EVENTS, st.lists(st.integers(1, 40), max_size=40))
def test_events_come_out_whole_however_the_bytes_are_cut(events: list[StreamEvent], sizes: list[int]) -> None:
    parser, rest, found = SseParser(), wire(events), []
    for size in sizes:
        found += parser.feed(rest[:size])
        rest = rest[size:]
    found += parser.feed(rest)
    assert found == events


def test_a_half_event_is_held_back() -> None:
    parser = SseParser()
    assert parser.feed(b'id: 1\nevent: state\ndata: {"status": "Running"}\n') == []
    assert parser.feed(b"\r\n") == [StreamEvent("state", "1", {"status": "Running"})]


def test_comments_are_skipped() -> None:
    assert SseParser().feed(b": keepalive\n\n: keepalive\n\n") == []
