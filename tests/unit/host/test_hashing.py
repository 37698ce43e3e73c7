"""Hashes of files and pieces."""

from __future__ import annotations

import hashlib
from pathlib import Path

from muster.host.hashing import Measuring, measure, measure_open, measure_pieces, sha256_of

DATA = b"muster" * 100_000
SHA256 = hashlib.sha256(DATA).hexdigest()


def test_a_files_hash_and_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    assert sha256_of(path) == SHA256
    assert measure(path) == (SHA256, len(DATA))
    with path.open("rb") as file:
        file.read(10)
        assert measure_open(file) == (SHA256, len(DATA))


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    assert measure(path) == (hashlib.sha256().hexdigest(), 0)


def test_pieces_are_counted_on_their_way() -> None:
    measuring = Measuring()
    pieces = [DATA[:7], b"", DATA[7:]]
    assert list(measuring.passing(pieces)) == pieces
    assert (measuring.sha256, measuring.size) == (SHA256, len(DATA))
    assert measure_pieces(pieces) == (SHA256, len(DATA))
