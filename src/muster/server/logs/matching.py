"""Lines that match a pattern: found by a child process, so that no pattern can block the server."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from pathlib import Path

from muster import errors
from muster.server.logs import matcher

_BLOCK_MOST_S = 10.0
"""How long one block, of a megabyte or so, may take."""


class Matcher:
    """One pattern; `close` ends its process."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        command = [sys.executable, "-I", "-S", str(Path(matcher.__file__))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        try:
            problem = self._ask(pattern.encode())
        except BaseException:
            self.close()
            raise
        if problem:
            self.close()
            raise errors.JobError(
                f"{pattern!r} is not a regular expression: {problem.decode()}",
                r"Put a backslash before . [ ( * + ? that stand for themselves.",
            )

    def lines(self, block: bytes) -> list[tuple[int, int]]:
        """Where the matching lines of a block begin and end."""
        return list(matcher.PAIR.iter_unpack(self._ask(block))) if block else []

    def close(self) -> None:
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()

    def _ask(self, data: bytes) -> bytes:
        assert self._process.stdin is not None
        rest = memoryview(matcher.SIZE.pack(len(data)) + data)
        try:
            while rest:
                rest = rest[self._process.stdin.write(rest) or 0 :]
        except (BrokenPipeError, ValueError):
            raise self._too_slow() from None
        deadline = time.monotonic() + _BLOCK_MOST_S
        return self._read(matcher.SIZE.unpack(self._read(matcher.SIZE.size, deadline))[0], deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        found = bytearray()
        ready = select.poll()
        ready.register(self._process.stdout, select.POLLIN)
        while len(found) < size:
            if not ready.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise self._too_slow()
            piece = self._process.stdout.read(size - len(found))
            if not piece:
                raise self._too_slow()
            found += piece
        return bytes(found)

    def _too_slow(self) -> errors.JobError:
        return errors.JobError(
            f"looking for {self._pattern!r} takes too long and was given up",
            "Use a pattern without nested repetitions, such as (a+)+.",
        )
