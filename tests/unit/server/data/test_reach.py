"""Members try to have the server open its own files and services for them."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.conftest import Server
from tests.unit.server.people.test_people import SPEC, Person

from muster.storage.reach import Reach


@pytest.fixture
def eve(server: Server) -> Person:
    server.context.isolation = "none"
    return Person(server, "eve", "member")


@pytest.fixture
def inside() -> Iterator[str]:
    """A service that only this machine sees."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_member_reads_no_file_of_the_server(server: Server, eve: Person) -> None:
    token = server.context.paths.admin_token
    attempts: list[tuple[str, Any]] = [
        ("/assets", {"name": "a", "address": f"file://{token}"}),
        ("/assets", {"name": "a", "address": str(token)}),
        ("/assets", {"name": "a", "address": f"local://{token}"}),
        ("/assets", {"name": "a", "address": f"simplecache::file://{token}"}),
        ("/datastores", {"name": "d", "kind": "local", "options": {"path": str(token.parent)}}),
        ("/datastores", {"name": "d", "kind": "nfs", "options": {"path": str(token.parent)}}),
        ("/datastores", {"name": "d", "kind": "fsspec", "options": {"url": f"file://{token.parent}"}}),
        ("/datastores", {"name": "d", "kind": "fsspec", "options": {"url": f"dir::file://{token.parent}"}}),
        ("/runs", {"key": "1", "spec": {**SPEC, "inputs": {"x": {"type": "uri_file", "path": str(token)}}}}),
        ("/runs", {"key": "2", "spec": {**SPEC, "inputs": {"x": {"type": "uri_file", "path": f"file://{token}"}}}}),
        ("/runs", {"key": "3", "spec": {**SPEC, "outputs": {"x": {"path": f"file://{token.parent}"}}}}),
    ]
    for path, body in attempts:
        status, answer = eve.call("POST", path, body)
        assert status in (403, 422), (path, body, answer)
    assert server.call("GET", "/assets")[1] == [] and len(server.call("GET", "/datastores")[1]) == 1


def test_what_the_administrator_lists_or_registers_is_opened(server: Server, eve: Person, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_text("content")
    body = {"name": "mine", "kind": "local", "options": {"path": str(data)}}
    assert eve.call("POST", "/datastores", body)[0] == 403
    assert server.call("POST", "/datastores", {**body, "name": "theirs"})[0] == 201
    assert eve.call("POST", "/datastores/theirs/test", {"write": False})[0] == 200
    server.context.reach = Reach((str(data),))
    assert eve.call("POST", "/datastores", body)[0] == 201
    link = data / "link"
    link.symlink_to(server.context.paths.server_dir)
    assert eve.call("POST", "/datastores", {**body, "name": "l", "options": {"path": str(link)}})[0] == 403


def test_a_datastore_that_was_a_folder_and_became_a_link_is_not_opened(
    server: Server, eve: Person, tmp_path: Path
) -> None:
    data = tmp_path / "data" / "mine"
    data.mkdir(parents=True)
    server.context.reach = Reach((str(data.parent),))
    body = {"name": "mine", "kind": "local", "options": {"path": str(data)}}
    assert eve.call("POST", "/datastores", body)[0] == 201
    data.rmdir()
    data.symlink_to(server.context.paths.server_dir)
    assert eve.call("POST", "/datastores/mine/test", {"write": False})[0] == 403
    assert eve.call("GET", "/data/mine/?list=1")[0] == 403


def test_a_member_reaches_no_service_of_the_machine(server: Server, eve: Person, inside: str) -> None:
    options = {"account": "devstoreaccount1", "container": "c", "endpoint": f"http://{inside}/devstoreaccount1"}
    body = {"name": "blob", "kind": "azure-blob", "options": options}
    assert eve.call("POST", "/datastores", body)[0] == 201, (
        "a name says nothing: its address is looked at when it is used"
    )
    status, answer = eve.call("POST", "/datastores/blob/test", {"write": False})
    assert status == 403 or "own machine" in answer["error"]["message"], answer


def test_alone_one_opens_what_one_likes(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("content")
    assert server.call("POST", "/assets", {"name": "a", "address": f"file://{tmp_path}/x"})[0] == 201
