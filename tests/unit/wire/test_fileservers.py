"""File servers on the wire: names, sizes and networks."""

from __future__ import annotations

import pytest

from muster.wire.data.fileservers import NewFileServer, read_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("500GB", 500 * 10**9), ("2 TB", 2 * 10**12), ("64GiB", 64 << 30), ("1.5g", 1_500_000_000), ("7", 7 * 10**9)],
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1GB", "1XB", "1e9"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        read_size(text)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"name": "Bad"}, "lower-case"),
        ({"size_bytes": 1}, "out of range"),
        ({"clients": "0.0.0.0/0"}, "not a private network"),
        ({"clients": "8.8.8.0/24"}, "not a private network"),
        ({"clients": "here"}, "is not a network"),
        ({"folder": "data"}, "is not absolute"),
    ],
)
def test_what_cannot_be_a_file_server(given: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        NewFileServer(**{"name": "imagenet", "size_bytes": 10**9, **given})  # type: ignore[arg-type]
