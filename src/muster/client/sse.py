"""Server-sent events, taken apart as their bytes arrive."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StreamEvent:
    """One event of a run; `cursor` resumes after it. A log event has its bytes as `data["bytes"]`."""

    event: str
    cursor: str
    data: dict[str, Any]


class SseParser:
    """Feed it bytes cut anywhere; it gives back the events that are whole."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._searched = 0
        self._event = ""
        self._id = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        self._rest += chunk
        found: list[StreamEvent] = []
        begin = 0
        # What was searched before is not searched again: one line may be megabytes long.
        while (end := self._rest.find(b"\n", max(begin, self._searched))) >= 0:
            line = bytes(self._rest[begin:end]).removesuffix(b"\r")
            begin = end + 1
            event = self._line(line)
            if event is not None:
                found.append(event)
        del self._rest[:begin]
        self._searched = len(self._rest)
        return found

    def _line(self, line: bytes) -> StreamEvent | None:
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

    def _dispatch(self) -> StreamEvent | None:
        event, lines = self._event, self._data
        self._event, self._data = "", []
        if not lines:
            return None
        data: dict[str, Any] = json.loads(b"\n".join(lines))
        if event == "log":
            data["bytes"] = base64.b64decode(data.pop("base64", ""))
        return StreamEvent(event or "message", self._id, data)
