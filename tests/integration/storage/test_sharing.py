"""Inputs that the nodes of a gang take from each other: a real server, real agents, a web server as the source."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.integration.server.conftest import Site

DATA = random.Random(3).randbytes(24 << 20)


class WebSource:
    """Serves one file with ranges, and counts what it sends."""

    def __init__(self) -> None:
        self.sent = 0
        self._lock = threading.Lock()
        source = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._answer(with_body=False)

            def do_GET(self) -> None:
                self._answer(with_body=True)

            def log_message(self, format: str, *args: object) -> None:
                pass

            def _answer(self, with_body: bool) -> None:
                given = self.headers.get("Range")
                first, _, last = (given or f"bytes=0-{len(DATA) - 1}").removeprefix("bytes=").partition("-")
                body = DATA[int(first) : int(last) + 1]
                self.send_response(206 if given else 200)
                self.send_header("ETag", '"one"')
                self.send_header("Content-Length", str(len(body)))
                if given:
                    self.send_header("Content-Range", f"bytes {first}-{last}/{len(DATA)}")
                self.end_headers()
                if with_body:
                    self.wfile.write(body)
                    # One byte is the question whether parts of files are sent.
                    if len(body) > 1:
                        with source._lock:
                            source.sent += len(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/data.bin"


@pytest.fixture
def source() -> Iterator[WebSource]:
    made = WebSource()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_CACHE_DIR", str(tmp_path / "cache"))


def gang(source: WebSource, nodes: int) -> dict[str, object]:
    return {
        "command": "sha256sum ${{inputs.data}}",
        "compute": "gang",
        "resources": {"instance_count": nodes},
        "distribution": {"type": "pytorch", "process_count_per_instance": 1},
        "inputs": {"data": {"type": "uri_file", "path": source.url, "mode": "download"}},
    }


def test_a_gang_reads_its_source_once_and_a_later_node_not_at_all(site: Site, source: WebSource) -> None:
    site.client.create_cluster("gang", options={"max_nodes": 3, "min_nodes": 3, "cpus": 1, "share_data": True})
    first = site.run(**gang(source, 2))
    site.wait(first, "Completed", timeout_s=120.0)
    assert source.sent == len(DATA)
    # The third node has nothing yet.
    second = site.run(**gang(source, 3))
    site.wait(second, "Completed", timeout_s=120.0)
    assert source.sent == len(DATA)
    wanted = hashlib.sha256(DATA).hexdigest()
    assert wanted in site.log(second, "user_logs/std_log_process_0.txt").decode()
