"""Names of files where several nodes wrote the same one; cursors that come back."""

import base64
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.http.test_paging import add_runs

from muster.errors import JobError
from muster.server.logs.cursor import Cursor
from muster.server.runs.views import visible_names


def file(path, node_rank, sha256):
    return SimpleNamespace(path=path, node_rank=node_rank, sha256=sha256)


def test_each_nodes_file_is_kept_where_they_differ():
    rows = [file("outputs/a", 0, "x"), file("outputs/a", 1, "y"), file("outputs/a", 2, "x"), file("outputs/b", 1, "z")]
    names = [name for name, _ in visible_names(rows)]
    assert names == ["outputs/a", "node_1/outputs/a", "outputs/b"]


@given(st.lists(st.integers(0, 2**63 - 1), max_size=8))
def test_a_cursor_comes_back_as_it_was(numbers):
    cursor = Cursor(*numbers)
    assert Cursor.decode(cursor.encode()) == cursor


OLD = base64.b64encode(b'{"event":1,"metric":2,"logs":{"1/a":3}}').decode()


@pytest.mark.parametrize(
    "text", ["x", "e30", "!!!", "bm9uc2Vuc2U", "WzFd", "WzIsLTFd", "WzIsdHJ1ZV0", "W" * 5000, "ä", OLD]
)
def test_nonsense_is_no_cursor(text):
    with pytest.raises(JobError, match="not a cursor"):
        Cursor.decode(text)


@pytest.mark.parametrize("text", ["WzIsMCwwLDld", "WzIsMCwwLDAsOV0"])
def test_a_cursor_of_another_run_is_refused(server, text):
    add_runs(server, range(1))
    status, answer = server.call("GET", f"/runs/r-0/stream?follow=0&cursor={text}")
    assert status == 422
    assert "beyond" in answer["error"]["message"]


@pytest.mark.parametrize(
    "query", ["tail=-1", "tail=1&head=1", "grep=(", "since=1&ago_s=1", "first_line=0", "grep=", "rank=x"]
)
def test_a_query_of_logs_that_means_nothing_is_refused(server, query):
    add_runs(server, range(1))
    assert server.call("GET", f"/runs/r-0/stream?follow=0&{query}")[0] == 422
