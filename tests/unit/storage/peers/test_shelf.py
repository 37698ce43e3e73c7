"""What a node serves of contents on its disk, also while they are given their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.storage.peers.blocks import Row
from muster.storage.peers.shelf import BlockJournal, Missing, Shelved, Shelves, write_record
from muster.wire.data.access import FileEntry

NAME, KEY, DIGEST = "c" * 64, "key", "d" * 64
FILES = {"a": b"1" * 1_000, "b": b"2" * 2_000, "c": b"3" * 3_000}
ROW = Row([FileEntry(path, len(data)) for path, data in FILES.items()])


@pytest.fixture
def partial(tmp_path: Path) -> Path:
    """A content that has arrived and has no name yet."""
    folder = tmp_path / "trees" / ".partial" / KEY
    (folder / "data").mkdir(parents=True)
    for path, data in FILES.items():
        (folder / "data" / path).write_bytes(data)
    journal = BlockJournal(folder / "blocks")
    journal.block(0, "e" * 64)
    journal.close()
    write_record(tmp_path, NAME, Shelved(KEY, tuple((path, len(data)) for path, data in FILES.items())))
    return folder


def give_its_name(cache: Path, partial: Path) -> None:
    (cache / "sources").mkdir()
    (cache / "sources" / KEY).write_text(DIGEST)
    partial.rename(cache / "trees" / DIGEST)


def test_a_block_is_read_to_its_end_although_its_content_moves(tmp_path: Path, partial: Path) -> None:
    size, pieces = Shelves(tmp_path).read(NAME, 0)
    read = [next(pieces)]
    give_its_name(tmp_path, partial)
    read += pieces
    assert b"".join(read) == b"".join(FILES.values())
    assert size == ROW.size


def test_a_block_that_has_not_arrived_is_missing(tmp_path: Path, partial: Path) -> None:
    (partial / "blocks").write_bytes(b"")
    with pytest.raises(Missing, match="has not arrived"):
        Shelves(tmp_path).read(NAME, 0)
