"""Libraries that connect by themselves, in loops and threads of their own, stay outside the fence too."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import fsspec
import pytest

from muster.host.egress import Fence, fenced, networks


@pytest.fixture
def local() -> Iterator[str]:
    """A service of this machine."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


def causes(error: BaseException | None) -> str:
    """What an error says, with what it comes from."""
    return f"{error}\n{causes(error.__cause__ or error.__context__)}" if error is not None else ""


def test_a_filesystem_with_a_loop_of_its_own_is_fenced(local: str) -> None:
    files = fsspec.filesystem("http", skip_instance_cache=True)
    with fenced(Fence()), pytest.raises(Exception) as found:
        files.cat_file(local)
    assert "the server's own machine" in causes(found.value)
    with fenced(Fence(networks(["127.0.0.1"]))):
        assert files.cat_file(local)
