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


FILES = {"train.py": (SHA256, len(CONTENT), 0o644)}
DIGEST = digest_of(FILES)


@pytest.mark.parametrize("damaged", [f"code/snapshots/{DIGEST}.json", f"code/blobs/{SHA256[:2]}/{SHA256}"])
@pytest.mark.parametrize("content", [b"", b"[]", b"\0" * 300])
def test_a_snapshot_that_is_damaged_counts_as_missing_and_is_whole_when_sent_again(
    tmp_path: Path, damaged: str, content: bytes
) -> None:
    snapshots = Snapshots(Store(str(tmp_path)))
    snapshots.put_blob(SHA256, iter([CONTENT]))
    snapshots.put(DIGEST, FILES)
    assert snapshots.has(DIGEST)
    (tmp_path / damaged).write_bytes(content)
    # By a server that knows it from before the damage, which meets it when it sends the code to a node.
    with pytest.raises(Damaged):
        list(snapshots.archive(DIGEST))
    for server in (snapshots, Snapshots(Store(str(tmp_path)))):
        assert not server.has(DIGEST)
        for sha256 in server.missing(FILES):
            server.put_blob(sha256, iter([CONTENT]))
        server.put(DIGEST, FILES)
        assert server.has(DIGEST)
        assert CONTENT in b"".join(server.archive(DIGEST))
        (tmp_path / damaged).write_bytes(content)


def test_a_list_of_files_that_belongs_to_another_snapshot_is_damaged(tmp_path: Path) -> None:
    snapshots = Snapshots(Store(str(tmp_path)))
    snapshots.put_blob(SHA256, iter([CONTENT]))
    snapshots.put(DIGEST, FILES)
    other = {"other.py": FILES["train.py"]}
    (tmp_path / "code" / "snapshots" / f"{DIGEST}.json").write_text(json.dumps(other))
    assert not Snapshots(Store(str(tmp_path))).has(DIGEST)
    with pytest.raises(Damaged, match="not the one that was sent"):
        snapshots.files(DIGEST)
