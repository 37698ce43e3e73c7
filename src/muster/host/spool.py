"""Calls through a shared folder, for nodes that cannot reach the server by network. Standard library only.

A call is an HTTP request in its usual form, written to a file; the server sends it to itself and writes the answer
next to it. Files appear by rename, so nobody reads half of one.
"""

from __future__ import annotations

import io
import os
import time
import uuid
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, Any

from muster.errors import ServerUnavailable
from muster.host.files import PRIVATE, new_file

REQUEST, ANSWER, PART = ".request", ".answer", ".part"
_FIRST_LOOK_S = 0.02
_LOOK_S = 0.25
_IN_MEMORY = 1 << 20


class SpoolConnection(HTTPConnection):
    """`http.client` over files: each request is one file, each answer another."""

    def __init__(self, folder: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._folder = Path(folder)

    def connect(self) -> None:
        if not self._folder.is_dir():
            raise OSError(f"the folder {self._folder} for calls to the server is not there")
        self.sock = _Exchange(self._folder, self.timeout or 60.0)

    def endheaders(self, message_body: Any = None, *, encode_chunked: bool = False) -> None:
        # The server then closes the connection after its answer, which marks its end.
        self.putheader("Connection", "close")
        super().endheaders(message_body, encode_chunked=encode_chunked)


class _Exchange:
    """What `http.client` uses of a socket."""

    def __init__(self, folder: Path, timeout_s: float) -> None:
        self._base = folder / uuid.uuid4().hex
        self._timeout_s = timeout_s
        self._part = new_file(self._base.with_suffix(PART), PRIVATE)

    def sendall(self, data: bytes) -> None:
        self._part.write(data)

    def settimeout(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s or 60.0

    def makefile(self, _mode: str) -> IO[bytes]:
        """The request is complete: publish it and wait for the answer."""
        self._part.close()
        request, answer = self._base.with_suffix(REQUEST), self._base.with_suffix(ANSWER)
        self._base.with_suffix(PART).rename(request)
        deadline, wait_s = time.monotonic() + self._timeout_s, _FIRST_LOOK_S
        while True:
            try:
                file = answer.open("rb")
            except FileNotFoundError:
                if time.monotonic() > deadline:
                    request.unlink(missing_ok=True)
                    raise ServerUnavailable(f"no answer came through {self._base.parent}") from None
                time.sleep(wait_s)
                wait_s = min(wait_s * 1.5, _LOOK_S)
                continue
            answer.unlink(missing_ok=True)
            if os.fstat(file.fileno()).st_size > _IN_MEMORY:
                return file
            with file:
                return io.BytesIO(file.read())

    def close(self) -> None:
        self._part.close()
        self._base.with_suffix(PART).unlink(missing_ok=True)
