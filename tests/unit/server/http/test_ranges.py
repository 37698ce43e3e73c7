"""Ranges of a file that grows: what is asked for, nothing beyond it, and never an error of the server."""

from __future__ import annotations

import pytest
from tests.unit.server.conftest import Server
from tests.unit.server.http.test_paging import add_runs

from muster.wire.node.agents import Chunk


@pytest.mark.parametrize(
    ("asked", "status", "body"),
    [
        ("bytes=2-4", 206, b"234"),
        ("bytes=7-", 206, b"789"),
        ("bytes=-3", 206, b"789"),
        ("bytes=-99", 206, b"0123456789"),
        ("bytes=10-", 206, b""),
        ("bytes=4-2", 206, b""),
        ("bytes=-0", 206, b""),
        ("bytes=--5", 206, b""),
        (f"bytes={10**30}-", 206, b""),
        ("bytes=x-", 206, b"0123456789"),
    ],
)
def test_a_part_of_a_log(server: Server, asked: str, status: int, body: bytes) -> None:
    add_runs(server, range(1), attempt=1)
    server.context.files.streams.append([Chunk("r-0", 1, "user_logs/std_log.txt", 0, b"0123456789")])
    found = server.fetch("/runs/r-0/files/user_logs/std_log.txt", {"Range": asked})
    assert found == (status, body)
