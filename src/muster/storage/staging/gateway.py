"""A source as a read-only mount: rclone mounts a small server of this process, so that it needs no credential.

Only the loopback interface is served, under a path that nobody can guess. It reads the requested data block by block,
so it suits data that does not fit on a disk, but is too slow to feed GPUs.
"""

from __future__ import annotations

import html
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import quote, unquote

from muster.host.processes import die_with_parent
from muster.storage.connectors.base import BLOCK_BYTES, Source, TransferError
from muster.wire.data.access import FileEntry

_READY_S = 30.0


class Mounted:
    """One mount, until it is closed."""

    def __init__(self, source: Source, entries: Mapping[str, FileEntry], target: Path) -> None:
        """`entries` by the paths that they are shown under."""
        self._target = target
        self._secret = secrets.token_urlsafe(24)
        self._server = _Server(source, entries, self._secret)
        Thread(target=self._server.serve_forever, daemon=True).start()
        self._rclone = self._mount()

    def close(self) -> None:
        if self._rclone.poll() is None:
            # It unmounts by itself when it is asked to end.
            self._rclone.terminate()
            try:
                self._rclone.wait(5)
            except subprocess.TimeoutExpired:
                self._rclone.kill()
                self._rclone.wait()
        self._server.shutdown()
        self._server.server_close()

    def _mount(self) -> subprocess.Popen[bytes]:
        program = shutil.which("rclone")
        if program is None:
            raise TransferError("data_unavailable", "mounting needs the program rclone, which is not on this node")
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": "/nonexistent",
            "RCLONE_CONFIG": "",
            "RCLONE_CONFIG_DATA_TYPE": "http",
            "RCLONE_CONFIG_DATA_URL": f"http://127.0.0.1:{self._server.server_port}/{self._secret}/",
        }
        options = [
            "--read-only",
            "--dir-cache-time=1h",
            "--vfs-read-chunk-size=8M",
            "--attr-timeout=1h",
            "--no-modtime",
        ]
        child = subprocess.Popen(
            [program, "mount", "data:", str(self._target), *options],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # The kernel ends it with its mover, however that ends.
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
        deadline = time.monotonic() + _READY_S
        while not os.path.ismount(self._target):
            if child.poll() is not None or time.monotonic() > deadline:
                child.kill()
                printed = (child.communicate()[1] or b"").decode(errors="replace").strip().splitlines()
                why = printed[-1] if printed else "it did not become ready"
                raise TransferError("data_unavailable", f"rclone could not mount at {self._target}: {why}")
            time.sleep(0.02)
        return child


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, source: Source, entries: Mapping[str, FileEntry], secret: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.source = source
        self.entries = entries
        self.secret = secret
        self.folders: dict[str, set[str]] = {"": set()}
        for path in entries:
            parts = path.split("/")
            for depth in range(len(parts)):
                last = depth == len(parts) - 1
                above = "/".join(parts[:depth])
                self.folders.setdefault(above, set()).add(parts[depth] + ("" if last else "/"))


class _Handler(BaseHTTPRequestHandler):
    """Folders as pages of links, files with ranges."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def do_HEAD(self) -> None:
        self._answer(head=True)

    def do_GET(self) -> None:
        self._answer(head=False)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, head: bool) -> None:
        prefix, _, path = unquote(self.path.lstrip("/")).partition("/")
        entry = self.server.entries.get(path)
        if not secrets.compare_digest(prefix.encode(), self.server.secret.encode()):
            self.send_error(404)
        elif entry is not None:
            self._file(entry, head)
        elif path.rstrip("/") in self.server.folders:
            names = sorted(self.server.folders[path.rstrip("/")])
            links = "".join(f'<a href="{quote(name)}">{html.escape(name)}</a>\n' for name in names)
            self._send(200, f"<html><body>{links}</body></html>".encode(), "text/html", head)
        else:
            self.send_error(404)

    def _send(self, status: int, body: bytes, kind: str, head: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not head:
            self.wfile.write(body)

    def _file(self, entry: FileEntry, head: bool) -> None:
        start, end = _range(self.headers.get("Range"), entry.size)
        self.send_response(206 if self.headers.get("Range") else 200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(end - start))
        if self.headers.get("Range"):
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{entry.size}")
        self.end_headers()
        if head:
            return
        buffer = memoryview(bytearray(min(BLOCK_BYTES, max(1, end - start))))
        while start < end:
            view = buffer[: min(len(buffer), end - start)]
            try:
                self.server.source.read(entry, start, view)
                self.wfile.write(view)
            except (TransferError, OSError):
                # The length has been sent already: closing is the only way to say that it failed.
                self.close_connection = True
                return
            start += len(view)


def _range(given: str | None, size: int) -> tuple[int, int]:
    if not given or not given.startswith("bytes="):
        return 0, size
    first, _, last = given.removeprefix("bytes=").partition("-")
    if not first:
        return max(0, size - int(last)), size
    return min(int(first), size), min(int(last) + 1 if last else size, size)
