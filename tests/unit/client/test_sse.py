"""Server-sent events survive any cut of their bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.sites.views import sse

from muster.client.sse import SseParser, StreamItem
from muster.wire.stream import LogPiece, Note, StateChanged

CURSORS = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)
LOGS = st.builds(LogPiece.of, st.just(1), st.just("user_logs/std_log.txt"), st.integers(0, 9), st.binary())
NOTES = st.builds(Note, st.just("info"), st.text(), st.just(1.0))
ITEMS = st.lists(st.builds(StreamItem, st.one_of(LOGS, NOTES), CURSORS), max_size=6)


@given(ITEMS, st.lists(st.integers(1, 40), max_size=40))
def test_events_come_out_whole_however_the_bytes_are_cut(items: list[StreamItem], sizes: list[int]) -> None:
    parser, found = SseParser(), []
    rest = b": keepalive\n\n".join(sse(item.cursor, item.event) for item in items)
    for size in sizes:
        found += parser.feed(rest[:size])
        rest = rest[size:]
    found += parser.feed(rest)
    assert found == items


def test_a_half_event_is_held_back() -> None:
    parser = SseParser()
    assert parser.feed(b'id: 1\nevent: state\ndata: {"status": "Running", "at": 2}\n') == []
    assert parser.feed(b"\r\n") == [StreamItem(StateChanged("Running", 2.0), "1")]


def test_comments_are_skipped() -> None:
    assert SseParser().feed(b": keepalive\n\n: keepalive\n\n") == []
