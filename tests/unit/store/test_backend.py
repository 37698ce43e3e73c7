"""The workspace store, on a folder and on a filesystem that is none."""

import hashlib

import pytest

from muster.errors import Conflict, JobError, NotFound
from muster.store.backend import Store
from muster.store.snapshots import Snapshots
from muster.wire.code import digest_of


@pytest.fixture(params=["folder", "memory"])
def store(request, tmp_path):
    return Store(str(tmp_path) if request.param == "folder" else f"memory://{tmp_path.name}")


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_an_object_is_whole_or_not_there(store):
    def broken():
        yield b"half"
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        store.put("a/b", broken())
    assert not store.exists("a/b")
    assert store.put("a/b", [b"one", b"two"]) == 6
    assert store.read("a/b") == b"onetwo"


def test_a_damaged_object_is_refused(store):
    with pytest.raises(JobError, match="arrived damaged"):
        store.put("a", [b"data"], sha256=sha(b"other"))
    assert not store.exists("a")


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a//b", "", "a/.", "x\0y"])
def test_names_cannot_leave_the_store(store, name):
    with pytest.raises(JobError, match="leaves its folder"):
        store.put(name, [b"x"])


def test_what_is_not_there_is_named(store):
    with pytest.raises(NotFound, match="no nothing"):
        store.read("nothing")


def test_a_snapshot_is_named_by_its_content_and_needs_all_of_it(store, tmp_path):
    snapshots = Snapshots(store)
    files = {"train.py": [sha(b"print(1)"), 8, 0o644], "lib/x.sh": [sha(b"true"), 4, 0o755]}
    digest = digest_of(files)
    assert snapshots.missing(files) == sorted([sha(b"print(1)"), sha(b"true")])
    snapshots.put_blob(sha(b"print(1)"), iter([b"print(1)"]))
    with pytest.raises(Conflict, match="1 files"):
        snapshots.put(digest, files)
    snapshots.put_blob(sha(b"true"), iter([b"true"]))
    assert snapshots.missing(files) == []
    snapshots.put(digest, files)
    assert snapshots.has(digest)
    with pytest.raises(JobError, match="does not match"):
        snapshots.put(sha(b"x"), files)


def test_a_snapshot_comes_back_as_it_was(store, tmp_path):
    import io
    import tarfile

    snapshots = Snapshots(store)
    long = "deep/" * 40 + "name.py"
    content = {"a.py": b"x" * 600, long: b"", "ünï.txt": b"y"}
    files = {path: [sha(data), len(data), 0o644] for path, data in content.items()}
    for data in content.values():
        snapshots.put_blob(sha(data), iter([data] if data else []))
    snapshots.put(digest_of(files), files)
    archive = b"".join(snapshots.archive(digest_of(files)))
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar}
    assert found == content
