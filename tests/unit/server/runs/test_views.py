"""Names of files where several nodes wrote the same one; cursors that come back."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import JobError
from muster.server.runs.streaming import Cursor
from muster.server.runs.views import visible_names


def file(path, node_rank, sha256):
    return SimpleNamespace(path=path, node_rank=node_rank, sha256=sha256)


def test_each_nodes_file_is_kept_where_they_differ():
    rows = [file("outputs/a", 0, "x"), file("outputs/a", 1, "y"), file("outputs/a", 2, "x"), file("outputs/b", 1, "z")]
    names = [name for name, _ in visible_names(rows)]
    assert names == ["outputs/a", "node_1/outputs/a", "outputs/b"]


offsets = st.integers(0, 2**63 - 1)


@given(offsets, offsets, st.dictionaries(st.text(min_size=1), offsets, max_size=5))
def test_a_cursor_comes_back_as_it_was(event, metric, logs):
    cursor = Cursor(event, metric, logs)
    assert Cursor.decode(cursor.encode()) == cursor


@pytest.mark.parametrize("text", ["x", "e30", "!!!", "bm9uc2Vuc2U"])
def test_nonsense_is_no_cursor(text):
    with pytest.raises(JobError, match="no cursor"):
        Cursor.decode(text)
