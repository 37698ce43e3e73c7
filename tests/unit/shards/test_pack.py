"""Packing a folder: what was written is read back, once each, and an interruption costs only what was under way."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

import pytest

from muster.errors import Conflict, JobError
from muster.shards import pack
from muster.shards.index import places_of, read_index, write_places
from muster.shards.pack import Request, index_folder
from muster.shards.tar import places_from_text, scan


def request(tmp_path: Path, **changes: object) -> Request:
    given = {
        "folder": tmp_path / "in",
        "out": tmp_path / "out",
        "per_shard": 10,
        "seed": 1,
        "labels": True,
        "processes": 2,
    }
    return Request(**(given | changes))  # type: ignore[arg-type]


def packed(wanted: Request) -> list[int]:
    """Pack; returns the samples of each step forward."""
    steps: list[int] = []
    pack.pack(wanted, lambda count: None, lambda samples, size: steps.append(samples))
    return steps


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(47):
        file = tmp_path / "in" / ("cat" if number % 2 else "dog") / f"{number:03d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"%d " % number * (number * 30))
    return tmp_path


def contents(out: Path) -> dict[str, tuple[bytes, bytes]]:
    """What Python's own tar reader finds, by the key that the index has for it."""
    found = {}
    for shard in sorted(out.glob("*.tar")):
        keys = places_of(shard).keys
        with tarfile.open(shard) as tar:
            members = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
        for number, key in enumerate(keys):
            found[key] = members[f"{number:06d}.jpg"], members[f"{number:06d}.cls"]
    return found


def test_every_file_is_in_one_shard_with_its_label_and_the_hashes_are_true(folder: Path) -> None:
    packed(request(folder))
    index = read_index(folder / "out")
    assert index is not None and index.samples == 47 and index.classes == ("cat", "dog")
    assert [shard.samples for shard in index.shards] == [9, 9, 10, 9, 10]
    for shard in index.shards:
        data = (folder / "out" / shard.name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (shard.size, shard.sha256)
    found = contents(folder / "out")
    assert len(found) == 47
    for key, (jpg, label) in found.items():
        assert jpg == (folder / "in" / f"{key}.jpg").read_bytes()
        assert label == (b"0" if key.startswith("cat") else b"1")


def test_the_places_beside_a_shard_are_those_that_a_scan_finds(folder: Path) -> None:
    packed(request(folder))
    for shard in (folder / "out").glob("*.tar"):
        kept, scanned = places_of(shard), scan(shard)
        assert kept.fields == scanned.fields and len(kept.keys) == len(scanned.keys)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"size":1,"keys":[],"fields":{}}', '{"size":9,"keys":["a"],"fields":{"x":[[5,9]]}}']
)
def test_places_that_are_damaged_are_not_believed(text: str) -> None:
    assert places_from_text(text, 9) is None


def test_the_same_files_give_the_same_bytes_and_another_seed_others(folder: Path) -> None:
    for name, changes in (("a", {}), ("b", {"processes": 1}), ("c", {"seed": 2}), ("d", {"seed": None})):
        packed(request(folder, out=folder / name, **changes))
    hashes = {name: read_index(folder / name).shards[0].sha256 for name in "abcd"}  # type: ignore[union-attr]
    assert hashes["a"] == hashes["b"] and len(set(hashes.values())) == 3
    assert places_of(folder / "d" / "shard-00000.tar").keys[0] == "cat/001"


def test_after_an_interruption_only_what_is_missing_is_written(folder: Path) -> None:
    unreadable = folder / "in" / "cat" / "001.jpg"
    content = unreadable.read_bytes()
    unreadable.unlink()
    unreadable.symlink_to("nowhere")
    # A link to nowhere is no file; one that goes while it is packed is an error that names it.
    assert sum(packed(request(folder, out=folder / "other"))) == 46
    unreadable.unlink()
    unreadable.write_bytes(content)
    wanted = request(folder, processes=1)
    steps: list[int] = []

    def spoil(samples: int, size: int) -> None:
        steps.append(samples)
        if len(steps) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack.pack(wanted, lambda count: None, spoil)
    assert not (folder / "out" / "shards.json").exists()
    before = {shard.name: shard.stat().st_mtime_ns for shard in (folder / "out").glob("*.tar")}
    assert sum(packed(wanted)) == 47
    after = {shard.name: shard.stat().st_mtime_ns for shard in (folder / "out").glob("*.tar")}
    assert sum(before.get(name) == changed for name, changed in after.items()) >= 2
    assert len(contents(folder / "out")) == 47 and not (folder / "out" / ".packing.jsonl").exists()


def test_other_work_in_the_same_folder_is_refused(folder: Path) -> None:
    def stop(samples: int, size: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack.pack(request(folder), lambda count: None, stop)
    with pytest.raises(Conflict, match="unfinished packing of other files or with other options"):
        packed(request(folder, seed=9))
    packed(request(folder))
    with pytest.raises(Conflict, match="holds packed shards already"):
        packed(request(folder))
    with pytest.raises(JobError, match="would count as data"):
        packed(request(folder, out=folder / "in" / "out"))


def test_shards_of_others_get_an_index(folder: Path) -> None:
    packed(request(folder))
    (folder / "out" / "shards.json").unlink()
    write_places(folder / "out" / "shard-00000.tar", scan(folder / "out" / "shard-00001.tar"))
    made = index_folder(folder / "out", lambda samples, size: None, 2)
    assert made.samples == 47 and read_index(folder / "out") == made
    with pytest.raises(Conflict, match="has an index already"):
        index_folder(folder / "out", lambda samples, size: None, 2)
    with pytest.raises(JobError, match=r"holds no \.tar files"):
        index_folder(folder / "in", lambda samples, size: None, 2)


def test_a_stray_file_does_not_take_the_labels_from_all_others_unsaid(folder: Path) -> None:
    (folder / "in" / "README.md").write_text("about")
    with pytest.raises(JobError, match=r"README\.md lies in .*in itself.*no sample would have a label"):
        packed(request(folder))
    assert not (folder / "out").exists()
    packed(request(folder, labels=False))
    assert read_index(folder / "out").samples == 48


def test_what_a_killed_start_left_unfinished_goes(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / ".shard-00001.tar.part-0b585cdc").write_text("half")
    packed(request(folder))
    assert not [file.name for file in (folder / "out").iterdir() if ".part-" in file.name]
