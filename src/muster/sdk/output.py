"""What ranks print, as lines of one text."""

from __future__ import annotations

import re

from muster.wire.stream import LogPiece

_KEPT_BYTES = 1 << 20


class LineMerger:
    """Bytes of several logs in, whole lines out; a line rewritten with carriage returns shows its last state."""

    def __init__(self, num_ranks: int) -> None:
        self._prefixed = num_ranks > 1
        self._rest: dict[str, bytes] = {}

    def feed(self, log: LogPiece) -> str:
        """The lines that a log event completes."""
        stream = log.stream
        *lines, rest = (self._rest.get(stream, b"") + log.data).split(b"\n")
        if len(rest) > _KEPT_BYTES:
            lines.append(rest)
            rest = b""
        self._rest[stream] = rest
        return "".join(self._line(stream, line) for line in lines)

    def finish(self) -> str:
        """What is left without an end of line."""
        left = "".join(self._line(stream, rest) for stream, rest in sorted(self._rest.items()) if rest)
        self._rest.clear()
        return left

    def _line(self, stream: str, line: bytes) -> str:
        shown = line.removesuffix(b"\r").rpartition(b"\r")[2].decode(errors="replace")
        return f"{_prefix(stream) if self._prefixed else ''}{shown}\n"


def _prefix(stream: str) -> str:
    name = re.sub(r"^user_logs/(std_log_)?|\.txt$", "", stream)
    rank = re.fullmatch(r"process_0*(\d+)", name)
    return f"[rank {rank[1]}] " if rank else f"[{name}] "
