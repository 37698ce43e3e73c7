"""The process that moves data, by itself: a file share, fresh tokens, deaths in the middle."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from tests.conftest import wait_until

from muster.storage.connectors.opening import open_access
from muster.storage.staging.cache import Cache
from muster.storage.staging.model import Progress
from muster.storage.staging.stage import stage
from muster.wire.codec import to_json
from muster.wire.data.access import Access


@dataclass
class Share:
    """The part of Azure Files that is used, with one token that is good."""

    token: str = "sig=good"
    files: dict[str, bytearray] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/share/base"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    share: Share

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        name = unquote(parts.path).removeprefix("/share/base/")
        if self.share.token not in parts.query:
            self._answer(403)
        elif self.command == "PUT":
            self._put(name, query, body)
        elif name not in self.share.files:
            self._answer(404)
        elif self.command == "DELETE":
            del self.share.files[name]
            self._answer(202)
        else:
            self._get(name)

    def _put(self, name: str, query: dict[str, list[str]], body: bytes) -> None:
        kind = query.get("comp", query.get("restype", [""]))[0]
        if kind == "directory":
            known = name in self.share.folders
            self.share.folders.add(name)
            self._answer(409 if known else 201)
        elif kind == "range":
            first, last = map(int, self.headers["x-ms-range"].removeprefix("bytes=").split("-"))
            self.share.files[name][first : last + 1] = body
            self._answer(201)
        elif kind == "metadata":
            self.share.hashes[name] = self.headers["x-ms-meta-sha256"]
            self._answer(200)
        else:
            assert "/" not in name or name.rpartition("/")[0] in self.share.folders
            self.share.files[name] = bytearray(int(self.headers["x-ms-content-length"]))
            self._answer(201)

    def _get(self, name: str) -> None:
        data = bytes(self.share.files[name])
        given = self.headers.get("Range")
        if given:
            first, last = map(int, given.removeprefix("bytes=").split("-"))
            data = data[first : last + 1]
        headers = {"ETag": '"v1"'}
        if name in self.share.hashes:
            headers["x-ms-meta-sha256"] = self.share.hashes[name]
        self._answer(206 if given else 200, data, headers)

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def share() -> Iterator[Share]:
    served = Share()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"share": served}))
    served.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield served
    server.shutdown()
    server.server_close()
    thread.join()


class Mover:
    """A mover as an agent has it."""

    def __init__(self, **request: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "muster.storage.staging"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.say(request)

    def say(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)
            if "progress" not in message:
                return message
        return {}

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


def sending(path: Path, name: str) -> dict[str, Any]:
    data = path.read_bytes()
    return {"path": str(path), "name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_a_file_share_is_written_and_read(share: Share, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * (9 << 20))
    access = Access("azure-file", share.url, token=share.token)
    files = [sending(tmp_path / "a", "deep/er/a b")]
    mover = Mover(do="send", access=to_json(access), files=files)
    assert mover.hear() == {"done": {"files": 1, "bytes": 9 << 20}}
    mover.close()
    assert bytes(share.files["deep/er/a b"]) == b"x" * (9 << 20)
    manifest = [{"path": "deep/er/a b", "size": 9 << 20, "sha256": files[0]["sha256"], "etag": "v1"}]
    cache = str(tmp_path / "cache")
    request = {**to_json(access), "manifest": manifest}
    mover = Mover(do="stage", what="input 'x'", access=request, cache=cache)
    done = mover.hear()["done"]
    assert (Path(done["data"]) / "deep/er/a b").read_bytes() == b"x" * (9 << 20)
    mover.close()


def test_a_token_that_has_expired_is_asked_for_anew(share: Share, tmp_path: Path) -> None:
    share.files["a"] = bytearray(b"data")
    manifest = [{"path": "a", "size": 4, "etag": "v1"}]
    access = {**to_json(Access("azure-file", share.url, token="sig=old")), "manifest": manifest}
    mover = Mover(do="stage", what="input 'x'", access=access, cache=str(tmp_path / "cache"))
    assert mover.hear() == {"need": ["a"]}
    mover.say({"token": share.token})
    assert mover.hear()["done"]["bytes"] == 4
    mover.close()
    refused = Mover(do="stage", what="input 'x'", access=access, cache=str(tmp_path / "other"))
    assert refused.hear() == {"need": ["a"]}
    refused.say({"token": "sig=old"})
    failed = refused.hear()["failed"]
    assert failed["code"] == "data_unavailable" and "access was refused (403" in failed["message"]
    assert "sig=" not in failed["message"]
    refused.close()


def test_a_mover_ends_with_its_agent(share: Share, tmp_path: Path) -> None:
    share.files["a"] = bytearray(b"data")
    access = {
        **to_json(Access("azure-file", share.url, token="sig=old")),
        "manifest": [{"path": "a", "size": 4}],
    }
    mover = Mover(do="stage", what="input 'x'", access=access, cache=str(tmp_path / "cache"))
    assert mover.hear() == {"need": ["a"]}
    mover.close()
    assert mover.process.returncode is not None


EVICT = """
import sys
from pathlib import Path
from muster.storage.staging.cache import Cache
print("ready", flush=True)
Cache(Path(sys.argv[1]), 1).make_room(1)
"""


def test_an_eviction_that_is_killed_leaves_nothing_half(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for number in range(3000):
        place = source / f"d{number % 50}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"f{number}").write_bytes(b"%d" % number)
    cache = Cache(tmp_path / "cache", 1 << 30)
    remote = open_access(Access("file", str(source)))
    held, _ = stage(remote, "file:x", "input", None, cache, Progress())
    held.release()
    gone = cache.root / "trees/.gone"
    evicting = subprocess.Popen([sys.executable, "-c", EVICT, str(cache.root)], stdout=subprocess.PIPE)
    wait_until(lambda: list(gone.iterdir()) or evicting.poll() is not None, 30.0, "the eviction")
    evicting.send_signal(signal.SIGKILL)
    evicting.wait()
    assert evicting.stdout is not None
    evicting.stdout.close()
    assert cache.hold(held.digest) is None
    again, entries = stage(remote, "file:x", "input", None, cache, Progress())
    assert all((again.data / entry.path).read_bytes() == (source / entry.path).read_bytes() for entry in entries)
    again.release()
    assert not list(gone.iterdir())
