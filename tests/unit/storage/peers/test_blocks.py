"""Files as a row of blocks, and sets of blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.storage.peers import blocks
from muster.storage.peers.blocks import Row, everything, from_text, members, set_of, to_text
from muster.wire.data.access import FileEntry

SIZES = st.lists(st.integers(0, 3 * blocks.LEAST_BYTES), max_size=12)


def row_of(*sizes: int, etag: str | None = "1") -> Row:
    return Row([FileEntry(f"f{number:03}", size, etag=etag) for number, size in enumerate(sizes)])


@given(SIZES)
def test_the_blocks_are_all_bytes_in_order(sizes: list[int]) -> None:
    row = row_of(*sizes)
    found: dict[str, int] = {}
    for block in range(row.count):
        parts = list(row.parts(block))
        assert sum(part.length for part in parts) == row.length(block)
        for part in parts:
            assert part.length > 0
            assert part.offset == found.get(part.entry.path, 0)
            found[part.entry.path] = part.offset + part.length
    assert found == {entry.path: entry.size for entry in row.entries if entry.size}


@given(st.sets(st.integers(0, 99)))
def test_a_set_survives_its_way_through_text(chosen: set[int]) -> None:
    found = from_text(to_text(set_of(chosen)), 100)
    assert members(found) == sorted(chosen)
    assert members(found, 3) == sorted(chosen)[:3]


@pytest.mark.parametrize("text", ["x", "-1", "10", "0" * 100, "", "f" * 1_000_000])
def test_a_set_of_other_blocks_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"blocks|invalid"):
        from_text(text, 4)
    assert from_text("f", 4) == everything(4)


def test_blocks_grow_with_the_data() -> None:
    assert blocks.block_bytes(0) == blocks.LEAST_BYTES
    assert blocks.block_bytes(512 << 20) == 1 << 20
    assert blocks.block_bytes(1 << 40) == blocks.MOST_BYTES


def test_a_content_is_named_by_the_versions_of_its_files() -> None:
    first = row_of(1_000_000, 5)
    assert first.content() == row_of(1_000_000, 5).content()
    assert first.content() != row_of(1_000_000, 5, etag="2").content()
    # What the first download finds out makes it no other content.
    hashed = Row([FileEntry(entry.path, entry.size, "ab", entry.etag) for entry in first.entries])
    assert hashed.content() == first.content()
    assert row_of(1_000_000, etag=None).content() is None
    assert row_of(0, 0).content() is None
