"""Parses server-sent events as their bytes arrive."""

from __future__ import annotations

import json
from typing import NamedTuple

from muster.wire.stream import KINDS, StreamEvent, decode_event


class StreamItem(NamedTuple):
    """One event of a run, and the cursor that resumes after it."""

    event: StreamEvent
    cursor: str


class SseParser:
    """Takes chunks of bytes, cut anywhere; returns complete events."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._searched = 0
        self._event = ""
        self._id = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[StreamItem]:
        self._rest += chunk
        found: list[StreamItem] = []
        begin = 0
        # Earlier bytes are not searched again: one line may be megabytes long.
        while (end := self._rest.find(b"\n", max(begin, self._searched))) >= 0:
            line = bytes(self._rest[begin:end]).removesuffix(b"\r")
            begin = end + 1
            event = self._line(line)
            if event is not None:
                found.append(event)
        del self._rest[:begin]
        self._searched = len(self._rest)
        return found

    def _line(self, line: bytes) -> StreamItem | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._event = value.decode()
        elif field == b"id":
            self._id = value.decode()
        return None

    def _dispatch(self) -> StreamItem | None:
        event, lines = self._event, self._data
        self._event, self._data = "", []
        # Unknown events are ignored: this client can do without them.
        if not lines or event not in KINDS:
            return None
        return StreamItem(decode_event(event, json.loads(b"\n".join(lines))), self._id)
