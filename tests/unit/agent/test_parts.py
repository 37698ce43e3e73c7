"""Small parts of the agent: process tables, GPUs, code archives, files."""

from __future__ import annotations

import errno
import io
import os
import resource
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from muster.agent import devices, folder
from muster.agent.prepare import code
from muster.agent.prepare.code import Archive
from muster.agent.refusal import Refusal, refusal_of
from muster.agent.run import runtime_copy
from muster.agent.ship import files
from muster.host import processes
from muster.host.cache import FolderCache, Size
from muster.paths import AttemptPaths


def test_descendants_are_found_at_any_depth() -> None:
    table = processes.parse_ps("1 0 1 Ss\n10 1 10 S\n11 10 10 R+\n12 11 12 Z\n20 1 20 S\n")
    assert sorted(process.pid for process in processes.descendants([10], table)) == [11, 12]
    assert table[12].dead
    assert not table[11].dead


def test_the_process_table_knows_this_process() -> None:
    own = processes.table()[os.getpid()]
    assert (own.parent, own.group) == (os.getppid(), os.getpgrp())


def test_gpus_are_read_from_what_the_tool_prints() -> None:
    found = devices.parse_gpus("0, 35, 1024\n1, [N/A], 0\n\n")
    assert found == [devices.Gpu("0", 35.0, 1024 * 2**20), devices.Gpu("1", 0.0, 0.0)]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_archives_hold_plain_files_only(tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.linkname = kind, "/etc/passwd"
    with pytest.raises(Refusal, match="'x'"):
        code.unpack(_tar(info), tmp_path)


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x"])
def test_archives_cannot_write_outside(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refusal):
        code.unpack(_tar(tarfile.TarInfo(name)), tmp_path / "target")
    assert list(tmp_path.rglob("*")) == []


def test_a_snapshot_is_fetched_once_and_copied_for_each_use(tmp_path: Path) -> None:
    fetched: list[str] = []

    @contextmanager
    def fetch(digest: str) -> Iterator[Archive]:
        fetched.append(digest)
        info = tarfile.TarInfo("run.sh")
        info.mode = 0o755
        yield _tar(info)

    for target in ("one", "two"):
        code.copy_snapshot(tmp_path / "cache", "d", fetch, tmp_path / target)
        assert os.access(tmp_path / target / "run.sh", os.X_OK)
        assert (tmp_path / target / "run.sh").stat().st_nlink == 1
        (tmp_path / target / "run.sh").write_text("changed")
    assert fetched == ["d"]
    assert (tmp_path / "cache/d/data/run.sh").read_text() == ""


def test_code_that_was_not_used_for_longest_makes_room_and_what_is_being_copied_stays(tmp_path: Path) -> None:
    @contextmanager
    def fetch(digest: str) -> Iterator[Archive]:
        yield _tar(tarfile.TarInfo("run.sh"))

    cache = tmp_path / "cache"
    for age, digest in enumerate(("old", "busy", "recent")):
        code.copy_snapshot(cache, digest, fetch, tmp_path / digest)
        (cache / digest / "entry.json").write_text('{"size": 1000}')
        os.utime(cache / ".locks" / f"{digest}.use", (age, age))
    (cache / "of-an-older-version").mkdir()
    held = FolderCache(cache, 0, Size).hold("busy")
    assert held is not None
    os.utime(held.lock.descriptor, (1, 1))
    with held.lock:
        code.copy_snapshot(cache, "new", fetch, tmp_path / "new", limit_bytes=2500)
    assert sorted(path.name for path in cache.iterdir() if path.name[0] != ".") == ["busy", "new", "recent"]


def test_a_fetch_that_breaks_off_leaves_no_half_snapshot(tmp_path: Path) -> None:
    @contextmanager
    def broken(digest: str) -> Iterator[Archive]:
        raise ConnectionError
        yield io.BytesIO()

    with pytest.raises(ConnectionError):
        code.copy_snapshot(tmp_path, "d", broken, tmp_path / "target")
    assert not (tmp_path / "d").exists()


def test_names_that_are_not_utf_8_are_written_so_that_they_can_be_read() -> None:
    assert files.readable(os.fsdecode(b"caf\xe9")) == "caf\\xe9"
    assert files.readable("Grüße") == "Grüße"


def test_a_link_in_place_of_outputs_is_not_followed_outside(tmp_path: Path) -> None:
    paths = AttemptPaths(tmp_path / "attempt")
    paths.work.mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("x")
    (paths.work / "outputs").symlink_to(tmp_path / "secret")
    found = files.find(paths)
    assert found.files == {}
    assert found.left_out == ["outputs: a link that leaves the job's folder"]


def test_the_in_run_copy_holds_what_a_rank_may_import(tmp_path: Path) -> None:
    target = tmp_path / "1.0"
    runtime_copy.install(target)
    assert (target / "muster/errors.py").exists()
    assert (target / "muster/runtime/__init__.py").exists()
    assert not (target / "muster/agent").exists()
    (target / "muster/errors.py").write_text("damaged")
    runtime_copy.install(target)
    assert (target / "muster/errors.py").read_text() != "damaged"


def _tar(info: tarfile.TarInfo) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(info, io.BytesIO())
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (errno.ENOSPC, "disk_full", "is full"),
        (errno.EMFILE, "platform", "has used up its file descriptors"),
        (errno.EIO, "platform", "could not be prepared"),
    ],
)
def test_a_failure_of_the_system_is_named(tmp_path: Path, number: int, code: str, said: str) -> None:
    refusal = refusal_of(OSError(number, os.strerror(number)), tmp_path)
    assert refusal.event.code == code and said in refusal.event.message


def test_a_folder_that_cannot_be_removed_now_is_removed_later(tmp_path: Path) -> None:
    paths = AttemptPaths(tmp_path / "run.1")
    (paths.work / "deep").mkdir(parents=True)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, most[1]))
    try:
        assert not folder.remove(paths), "its descriptors are used up"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
    assert folder.remove(paths)
    assert list(tmp_path.iterdir()) == []
