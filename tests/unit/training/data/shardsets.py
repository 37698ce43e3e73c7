"""Small data sets for the tests, written without Muster."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path


def write_tars(
    folder: Path, counts: Sequence[int], tar_format: int = tarfile.USTAR_FORMAT, prefix: str = ""
) -> list[str]:
    """Shards in WebDataset's layout; returns the keys."""
    folder.mkdir(parents=True, exist_ok=True)
    keys, number = [], 0
    for shard, count in enumerate(counts):
        with tarfile.open(folder / f"part-{shard:03d}.tar", "w", format=tar_format) as tar:
            for _ in range(count):
                key = f"{prefix}{number:06d}"
                for suffix, content in (("jpg", f"image {number}".encode() * 5), ("cls", str(number % 7).encode())):
                    member = tarfile.TarInfo(f"{key}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
                keys.append(key)
                number += 1
    return keys


def write_records(path: Path, records: Sequence[bytes]) -> None:
    """A TFRecord file; nobody here looks at its checksums."""
    with path.open("wb") as file:
        for record in records:
            file.write(struct.pack("<QI", len(record), 0) + record + struct.pack("<I", 0))
