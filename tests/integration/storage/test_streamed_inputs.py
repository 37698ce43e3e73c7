"""Inputs in mode `stream`: files that appear one by one while the job reads, in the order in which it needs them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site
from tests.integration.storage.conftest import Container

from muster.errors import JobError
from muster.job.explain import make_spec
from muster.shards.pack import Request, pack
from muster.storage.connectors.base import TransferError
from muster.storage.staging.arriving import Arrival
from muster.storage.staging.cache import Cache
from muster.storage.staging.model import Progress
from muster.training.data import Stream, numpy_batches
from muster.training.data.arriving import ArrivingFiles
from muster.wire.data.access import FileEntry

READS = """
import os, sys
from muster.training.data import Stream, numpy_batches

stream = Stream(sys.argv[1], batch_size=5, layout="tar")
print("samples", sorted(int(value) for batch in numpy_batches(stream, lambda s: int(s["txt"])) for value in batch))
try:
    open(os.path.join(sys.argv[1], "shards.tar-that-is-not-there"))
except FileNotFoundError:
    print("plain open is refused")
"""


class Gated:
    """A source in memory that gives the files whose gates are open."""

    label = "memory"

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.open: set[str] = set()
        self.order: list[str] = []
        self.broken: set[str] = set()
        self.changed = threading.Condition()

    def let(self, *names: str) -> None:
        with self.changed:
            self.open.update(names)
            self.changed.notify_all()

    def entries(self) -> list[FileEntry]:
        return [FileEntry(path, len(data), etag="1") for path, data in sorted(self.files.items())]

    def listing(self, folder: str = "") -> list[FileEntry]:
        return self.entries()

    def stat(self, path: str) -> None:
        return None

    def read(self, entry: FileEntry, offset: int, view: memoryview) -> None:
        with self.changed:
            self.order.append(entry.path)
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: entry.path in self.open | self.broken, 60)
        if entry.path in self.broken:
            raise TransferError("data_unavailable", "the storage burnt down")
        view[:] = self.files[entry.path][offset : offset + len(view)]


class Node:
    """What a mover does with the source."""

    def __init__(self, source: Gated, root: Path) -> None:
        self.source, self.progress = source, Progress()
        wishes = root / "wishes"
        wishes.touch()
        self.cache = Cache(root / "cache")
        self.arrival = Arrival(
            source, "memory:x", "input 'x'", source.entries(), self.cache, wishes, self.progress, None
        )
        self._thread = threading.Thread(target=self.arrival.go_on)

    def go_on(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self.source.let(*self.source.files)
        if self._thread.ident is not None:
            self._thread.join(60)
        self.arrival.close()


@pytest.fixture
def packed(tmp_path: Path) -> dict[str, bytes]:
    folder = tmp_path / "samples"
    folder.mkdir()
    for number in range(60):
        (folder / f"{number:03}.txt").write_text(str(number))
    request = Request(folder, tmp_path / "packed", per_shard=6, seed=1, labels=False, processes=1)
    pack(request, lambda count: None, lambda samples, size: None)
    found = {path.name: path.read_bytes() for path in (tmp_path / "packed").iterdir() if path.name[0] != "."}
    assert sum(name.endswith(".tar") for name in found) > 6
    return found


@pytest.fixture
def node(packed: dict[str, bytes], tmp_path: Path) -> Iterator[Node]:
    made = Node(Gated(packed), tmp_path)
    yield made
    made.close()


def shards(files: dict[str, bytes]) -> list[str]:
    return sorted(name for name in files if name.endswith(".tar"))


def test_the_job_starts_with_the_indexes_and_one_shard_and_waits_for_the_others(node: Node) -> None:
    files = node.source.files
    first, *others = shards(files)
    node.source.let(first, *(name for name in files if name.endswith(".json")))
    node.arrival.begin()
    there = {path.name for path in node.arrival.folder.iterdir() if not path.name.startswith(".")}
    assert there == files.keys() - set(others)
    node.go_on()
    stream = Stream(node.arrival.folder, batch_size=5, shuffle=None)
    batches = numpy_batches(stream, lambda sample: int(sample["txt"]))
    seen = [int(value) for value in next(batches)]
    assert len(seen) == 5 and not (node.arrival.folder / others[-1]).exists()
    node.source.let(*others)
    seen += [int(value) for batch in batches for value in batch]
    assert sorted(seen) == list(range(60))
    assert node.progress.done_bytes == node.progress.total_bytes


def test_what_a_rank_asks_for_comes_before_the_rest(node: Node) -> None:
    files = node.source.files
    names = shards(files)
    node.source.let(names[0], *(name for name in files if name.endswith(".json")))
    node.arrival.begin()
    rank = ArrivingFiles(node.arrival.folder)
    rank.will_fetch([names[-1], names[-2], "no such file"])
    node.go_on()
    with node.source.changed:
        asked = lambda: [name for name in node.source.order if name in names[1:]]  # noqa: E731
        assert node.source.changed.wait_for(lambda: len(asked()) >= 3, 60)
        assert {names[-1], names[-2]} <= set(asked()[:3])
    node.source.let(*names)
    assert rank.fetch(names[3], None).path.read_bytes() == files[names[3]]


def test_a_rank_that_waits_hears_why_nothing_comes(node: Node) -> None:
    names = shards(node.source.files)
    node.source.let(names[0], *(name for name in node.source.files if name.endswith(".json")))
    node.arrival.begin()
    rank = ArrivingFiles(node.arrival.folder)
    node.source.broken = set(names)
    node.go_on()
    with pytest.raises(TransferError, match=r"does not arrive: .*burnt down"):
        rank.fetch(names[5], None)
    with pytest.raises(FileNotFoundError):
        rank.fetch("no such file", None)


def test_a_rank_that_waits_hears_that_the_process_has_ended(node: Node) -> None:
    names = shards(node.source.files)
    node.source.let(names[0], *(name for name in node.source.files if name.endswith(".json")))
    node.arrival.begin()
    rank = ArrivingFiles(node.arrival.folder)
    node.arrival._alive.release()
    with pytest.raises(TransferError, match="has ended"):
        rank.fetch(names[5], None)


@pytest.mark.parametrize(
    ("met", "code", "next"),
    [
        (TransferError("disk_full", "no room", next="Make some."), "disk_full", "Make some."),
        (KeyError("x"), "platform", ""),
    ],
)
def test_why_nothing_comes_keeps_its_code_whatever_it_is(node: Node, met: Exception, code: str, next: str) -> None:
    def read(*_: object) -> None:
        raise met

    node.source.read = read  # type: ignore[method-assign]
    with pytest.raises(TransferError) as failed:
        node.arrival.begin()
    assert (failed.value.code, failed.value.next) == (code, next)
    again = node.arrival.go_on()
    assert again is not None and again.code == code


def test_what_a_killed_process_left_is_removed_by_the_next(
    node: Node, packed: dict[str, bytes], tmp_path: Path
) -> None:
    left, kept = node.cache.root / "arriving" / "left", node.arrival.folder
    left.mkdir()
    (left / ".muster.lock").touch()
    (left / "shard").write_bytes(b"x")
    other = Node(Gated(packed), tmp_path)
    other.close()
    assert kept.exists() and not left.exists() and not other.arrival.folder.exists()


def test_only_folders_are_streamed() -> None:
    inputs: dict[str, Any] = {"data": {"type": "uri_file", "path": "https://example.org/x", "mode": "stream"}}
    with pytest.raises(JobError, match=r"inputs\.data.* stream"):
        make_spec({"command": "true", "inputs": inputs})


def test_a_job_reads_its_shards_while_they_arrive(
    site: Site, blob: Container, packed: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_CACHE_DIR", str(tmp_path / "node-cache"))
    noise = random.Random(2).randbytes(1 << 20)
    for name, data in {**packed, "unused.bin": noise}.items():
        blob.put(f"set/{name}", data)
    (site.folder / "reads.py").write_text(READS)
    source = {"type": "uri_folder", "path": "azureml://datastores/blob/paths/set", "mode": "stream"}
    run = site.run(command="python reads.py ${{inputs.data}}", code=".", inputs={"data": source})
    assert site.wait(run)["status"] == "Completed", site.log(run)
    text = site.log(run).decode()
    assert f"samples {list(range(60))}" in text and "plain open is refused" in text
    wait_until(lambda: not list((tmp_path / "node-cache" / "arriving").glob("*")), 20.0, "the folder is removed")
    wait_until(lambda: str(tmp_path) not in Path("/proc/self/mountinfo").read_text(), 20.0, "the end of all mounts")
