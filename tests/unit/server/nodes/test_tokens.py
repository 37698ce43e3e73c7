"""An agent's token is for its node's current attempts: over is over, and after its cluster is gone nothing works."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from sqlalchemy import insert, update
from tests.unit.server.conftest import Server

from muster.server.database import records, tables
from muster.server.runs.submission import submit
from muster.wire.code import digest_of
from muster.wire.node.agents import Chunk, encode
from muster.wire.runs import Submission

STREAM = "user_logs/std_log.txt"


class Node:
    """The agent of a node, with a run on it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.token = server.context.tokens.create("agent", "two-0")
        server.context.nodes.agent_tokens["two-0"] = self.token
        self.digest = self.other = ""
        for name in ("train.py", "secret.py"):
            self.other, self.digest = self.digest, self._snapshot(name)
        spec = {"command": "python train.py", "compute": "two"}
        self.run = server.write(lambda t: submit(server.context, t, Submission("k", spec, self.digest))).id
        server.write(lambda t: records.RUN.set(t, self.run, attempt=1))
        where = {"run_id": self.run, "number": 1, "node_rank": 0, "cluster": "two", "node": "two-0", "host": "h"}
        rest = {"address": "", "cpus": 1, "gpus": [], "ranks": 1, "phase": "started", "lost": False, "ports": []}
        row = {**where, **rest, "leaving": False}
        server.write(lambda t: t.execute(insert(tables.placements).values(**row)))

    def _snapshot(self, name: str) -> str:
        content = name.encode()
        sha256 = hashlib.sha256(content).hexdigest()
        self.server.context.files.snapshots.put_blob(sha256, [content])
        files = {name: (sha256, len(content), 0o644)}
        digest = digest_of(files)
        self.server.call("PUT", f"/snapshots/{digest}", {"files": {name: [sha256, len(content), 0o644]}})
        return digest

    def status(self, method: str, path: str, body: bytes = b"") -> int:
        return self.server.status(method, path, body, authorization=f"Bearer {self.token}")

    def deliver(self, data: bytes, stream: str = STREAM) -> int:
        offset = self.server.context.files.streams.length(self.run, 1, stream)
        body = b"".join(encode([Chunk(self.run, 1, stream, offset, data)]))
        return self.status("POST", "/agents/two-0/deliveries", body)

    def put(self, path: str, data: bytes = b"mine") -> int:
        sha256 = hashlib.sha256(data).hexdigest()
        query = f"run={self.run}&attempt=1&node_rank=0&path={path}&size={len(data)}&sha256={sha256}"
        return self.status("PUT", f"/agents/two-0/files?{query}", data)

    def log(self) -> bytes:
        return self.server.context.files.streams.read(self.run, 1, STREAM, 0, 1000)

    def close(self) -> None:
        table = tables.placements
        self.server.write(lambda t: t.execute(update(table).where(table.c.run_id == self.run).values(phase="closed")))


@pytest.fixture
def node(server: Server) -> Node:
    return Node(server)


def test_a_node_reads_the_code_of_its_open_attempts_alone(node: Node) -> None:
    assert node.status("GET", f"/snapshots/{node.digest}/archive") == 200
    assert node.status("GET", f"/snapshots/{node.other}/archive") == 403
    node.close()
    assert node.status("GET", f"/snapshots/{node.digest}/archive") == 403


def test_what_is_over_takes_nothing_more(node: Node) -> None:
    assert node.deliver(b"first\n") == 200
    assert node.put("outputs/a") == 201
    node.close()
    assert node.deliver(b"forged\n") == 200, "it counts as delivered, so that the agent goes on"
    assert node.log() == b"first\n"
    assert node.put("outputs/a", b"forged") == 404
    for call in ("grants", "hashes", "environment"):
        assert node.status("POST", f"/agents/two-0/{call}", b"{}") in (403, 422)


def test_a_file_does_not_take_the_place_of_a_log(node: Node) -> None:
    assert node.deliver(b"first\n") == 200
    for path in (STREAM, "x" * 300):
        assert node.put(path) == 201, "the agent goes on"
    assert node.log() == b"first\n"
    shown: list[Any] = node.server.call("GET", f"/runs/{node.run}/files")[1]
    assert [item["path"] for item in shown] == [STREAM]


def test_after_its_cluster_is_deleted_nothing_works(node: Node) -> None:
    assert node.put("outputs/a") == 201
    node.close()
    server = node.server
    server.write(lambda t: records.RUN.set(t, node.run, status="Completed"))
    assert server.call("DELETE", "/clusters/two")[0] in (200, 202, 204)
    calls = [
        ("POST", "/agents/hello"), ("GET", "/agents/two-0/orders?agent=a&wait_s=0"),
        ("POST", "/agents/two-0/deliveries"),
        ("GET", f"/snapshots/{node.digest}/archive"), ("POST", "/agents/two-0/grants"),
        ("PUT", "/agents/two-0/files?run=r&attempt=1&node_rank=0&path=a&size=1&sha256=x"),
    ]  # fmt: skip
    for method, path in calls:
        assert node.status(method, path) == 403, path
    # A new life of the server does not bring it back.
    tokens = type(server.context.tokens)(server.context.database)
    with pytest.raises(Exception, match="not valid here"):
        tokens.caller(f"Bearer {node.token}")
    assert "two-0" not in server.context.nodes.agent_tokens
