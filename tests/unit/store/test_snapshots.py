"""A snapshot's manifest is checked against its bytes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from muster.errors import JobError
from muster.store.backend import Store
from muster.store.encryption import Damaged
from muster.store.snapshots import Snapshots
from muster.wire.code import digest_of

CONTENT = b"x" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.mark.parametrize("size", [0, 512, 999, 1001, -1, 1 << 40])
def test_a_size_that_is_not_that_of_the_bytes_is_refused(tmp_path: Path, size: int) -> None:
    snapshots = Snapshots(Store(str(tmp_path)))
    snapshots.put_blob(SHA256, iter([CONTENT]))
    files = {"train.py": (SHA256, size, 0o644)}
    with pytest.raises(JobError, match="manifest says"):
        snapshots.put(digest_of(files), files)
    # One that an earlier version took is not sent to nodes: its bytes could pose as the heads of other files.
    digest = digest_of(files)
    (tmp_path / "code" / "snapshots").mkdir(parents=True)
    (tmp_path / "code" / "snapshots" / f"{digest}.json").write_text(json.dumps(files))
    if size >= 0:
        with pytest.raises(Damaged):
            list(snapshots.archive(digest))
