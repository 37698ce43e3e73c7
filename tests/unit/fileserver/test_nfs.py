"""Muster's own NFS server: what it serves, what it refuses, and that nothing leads out of its folder."""

from __future__ import annotations

import os
import random
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from muster.fileserver import process
from muster.fileserver.nfs import serving
from muster.fileserver.nfs.tree import Node, Refused, Status, Tree
from muster.fileserver.nfs.xdr import Garbled, Reader, opaque, u32, u64

PUTFH, GETATTR, READDIR, PUTROOTFH, LOOKUP, GETFH, READ = 22, 9, 26, 24, 15, 10, 25
SIZE, FILE_ID = 1 << 4, 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    (data / "train").mkdir(parents=True)
    (data / "train" / "a.bin").write_bytes(bytes(range(256)) * 5_000)
    (data / "train" / "with space.txt").write_text("text")
    (tmp_path / "outside.txt").write_text("not served")
    (data / "link").symlink_to(tmp_path / "outside.txt")
    (data / "folder").symlink_to(tmp_path)
    (data / "private").write_text("not for everybody")
    (data / "private").chmod(0o600)
    return data


@pytest.fixture
def tree(folder: Path) -> Tree:
    return Tree("pictures", str(folder))


@pytest.fixture
def server(folder: Path) -> Iterator[serving.Server]:
    settings = serving.Settings("pictures", str(folder), "127.0.0.1", 0, "127.0.0.0/8")
    with serving.Server(settings) as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.05,))
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def at(tree: Tree, *names: str) -> Node:
    node = tree.top()
    for name in ("pictures", *names):
        node = tree.lookup(node, os.fsencode(name))
    return node


def call(*operations: bytes, minor: int = 0, version: int = 4, procedure: int = 1) -> bytes:
    head = u32(7) + u32(0) + u32(2) + u32(100003) + u32(version) + u32(procedure) + bytes(16)
    return head + opaque(b"") + u32(minor) + u32(len(operations)) + b"".join(operations)


def ended(tree: Tree, *operations: bytes, **how: int) -> tuple[int, Reader]:
    """The status of a request, and its results from the first on."""
    reader = Reader(serving.answered(tree, call(*operations, **how)))
    assert (reader.u32(), reader.fixed(20)) == (7, u32(1) + bytes(16))
    status = reader.u32()
    reader.opaque(0), reader.u32()
    return status, reader


def test_real_clients_read_what_is_there(server: serving.Server, folder: Path) -> None:
    if shutil.which("nfs-cat") is None:
        pytest.skip("not installed: libnfs-utils (make system)")

    def nfs(program: str, path: str) -> subprocess.CompletedProcess[bytes]:
        url = f"nfs://127.0.0.1/{path}?version=4&nfsport={server.port}"
        return subprocess.run([program, url], capture_output=True, timeout=30, check=False)

    assert process.answers("127.0.0.1", server.port)
    assert nfs("nfs-cat", "pictures/train/a.bin").stdout == (folder / "train" / "a.bin").read_bytes()
    assert nfs("nfs-cat", "pictures/train/with space.txt").stdout == b"text"
    assert [line.split()[-1] for line in nfs("nfs-ls", "pictures").stdout.splitlines()] in (
        [b"private", b"train"], [b"train", b"private"],
    )  # fmt: skip
    for path in ("pictures/link", "pictures/folder/outside.txt", "pictures/private", "other/train"):
        assert nfs("nfs-cat", path).returncode != 0


def test_a_handle_survives_the_process_and_ends_with_its_file(tree: Tree, folder: Path) -> None:
    long = folder / ("x" * 200)
    long.write_text("long")
    for path in (("train", "a.bin"), ("train",), (), (long.name,)):
        handle = tree.handle(at(tree, *path))
        assert len(handle) <= 128
        assert tree.node(handle).status.st_ino == folder.joinpath(*path).stat().st_ino
    handle = tree.handle(at(tree, "train", "a.bin"))
    other = folder / "new"
    other.write_text("another file of that name")
    other.chmod(0o644)
    again = Tree("pictures", str(folder))
    assert again.node(handle).status.st_size == 256 * 5_000
    other.replace(folder / "train" / "a.bin")
    with pytest.raises(Refused, match="STALE"):
        again.node(handle)


@pytest.mark.parametrize(
    "path", [b"../outside.txt", b"train/../../outside.txt", b"/etc/passwd", b"train//a.bin", b"a\0"]
)
def test_made_up_handles_lead_nowhere(tree: Tree, path: bytes) -> None:
    with pytest.raises(Refused, match="BADHANDLE"):
        tree.node(b"\1" + bytes(8) + path)


@pytest.mark.parametrize("path", [b"link", b"folder/outside.txt", b"folder"])
def test_links_are_not_followed_by_handles_either(tree: Tree, folder: Path, path: bytes) -> None:
    inode = (folder.parent / "outside.txt").stat().st_ino
    with pytest.raises(Refused, match="STALE"):
        tree.node(b"\1" + inode.to_bytes(8, "big") + path)


def test_what_is_not_for_everybody_is_not_read(tree: Tree) -> None:
    with pytest.raises(Refused, match="ACCESS"):
        tree.read(at(tree, "private"), 0, 10)


def test_a_file_is_read_in_parts_up_to_its_end(tree: Tree, folder: Path) -> None:
    data, node = (folder / "train" / "a.bin").read_bytes(), at(tree, "train", "a.bin")
    assert tree.read(node, 0, 1000) == (data[:1000], False)
    assert tree.read(node, len(data) - 10, 1000) == (data[-10:], True)
    assert tree.read(node, 1 << 63, 1000) == (b"", True)


def test_a_large_folder_is_listed_once_whatever_comes_and_goes(tree: Tree, folder: Path) -> None:
    many = folder / "many"
    many.mkdir()
    for number in range(500):
        (many / f"file-{number}").touch()
    handle, cookie, found, is_whole = tree.handle(at(tree, "many")), 0, [], False
    while not is_whole:
        wanted = u32(READDIR) + u64(cookie) + bytes(8) + u32(512) + u32(4096) + u32(1) + u32(SIZE | FILE_ID)
        status, reader = ended(tree, u32(PUTFH) + opaque(handle), wanted)
        assert status == 0
        reader.fixed(8 + 8 + 8)
        while reader.u32():
            cookie = reader.u64()
            found.append(reader.opaque(255).decode())
            assert reader.bitmap() == SIZE | FILE_ID
            reader.opaque(64)
        is_whole = bool(reader.u32())
        (many / f"new-{len(found)}").touch()
    old = [name for name in found if name.startswith("file-")]
    assert sorted(old) == sorted(f"file-{number}" for number in range(500))
    assert len(found) == len(set(found))


def test_everything_that_would_change_something_is_refused(tree: Tree, folder: Path) -> None:
    handle = u32(PUTFH) + opaque(tree.handle(at(tree, "train")))
    for number in (5, 6, 11, 28, 29, 34, 38):
        assert ended(tree, handle, u32(number) + bytes(64))[0] == Status.ROFS
    write = u32(18) + u32(0) + u32(2) + u32(0) + u64(1) + opaque(b"me") + u32(0) + u32(0) + opaque(b"a.bin")
    create = u32(18) + u32(0) + u32(1) + u32(0) + u64(1) + opaque(b"me") + u32(1) + u32(0)
    assert [ended(tree, handle, opening)[0] for opening in (write, create)] == [Status.ROFS] * 2
    assert sorted(path.name for path in (folder / "train").iterdir()) == ["a.bin", "with space.txt"]


def test_requests_that_make_no_sense_get_an_answer(tree: Tree) -> None:
    root = u32(PUTROOTFH)
    assert ended(tree, root, minor=2)[0] == Status.MINOR_VERS_MISMATCH
    assert ended(tree, u32(GETFH))[0] == Status.NOFILEHANDLE
    assert ended(tree, root, u32(77))[0] == Status.OP_ILLEGAL
    assert ended(tree, root, u32(12))[0] == Status.NOTSUPP
    assert ended(tree, root, u32(LOOKUP) + opaque(b"pictures"), u32(READ) + bytes(28))[0] == Status.ISDIR
    assert ended(tree, root, u32(LOOKUP) + u32(1 << 30))[0] == Status.BADXDR
    assert ended(tree, *[root] * 65)[0] == Status.RESOURCE
    for name, why in ((b"..", Status.BADNAME), (b"a/b", Status.BADNAME), (b"x" * 300, Status.NAMETOOLONG)):
        assert ended(tree, root, u32(LOOKUP) + opaque(b"pictures"), u32(LOOKUP) + opaque(name))[0] == why
    for how, state in (({"version": 3}, 2), ({"procedure": 9}, 3)):
        assert Reader(serving.answered(tree, call(**how))[20:]).u32() == state  # type: ignore[arg-type]


def test_no_call_harms_the_one_who_serves(tree: Tree) -> None:
    chance = random.Random(7)
    handles = [tree.handle(node) for node in (tree.top(), at(tree), at(tree, "train"), at(tree, "train", "a.bin"))]
    answers = 0
    for _ in range(2_000):
        operations = [u32(PUTFH) + opaque(chance.choice(handles))]
        operations += [u32(chance.randrange(45)) + chance.randbytes(chance.choice((0, 8, 28, 64))) for _ in range(3)]
        wanted = bytearray(call(*operations))
        for _ in range(chance.choice((0, 0, 4))):
            wanted[chance.randrange(len(wanted))] = chance.randrange(256)
        with suppress(Garbled):
            answers += len(serving.answered(tree, bytes(wanted))) > 0
    assert answers > 1_000


def test_a_call_without_end_is_not_waited_for_with_memory(server: serving.Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.sendall(struct.pack(">I", 0x7FFFFFFF) + bytes(1000))
        assert connection.recv(1) == b""
    assert process.answers("127.0.0.1", server.port)


def test_other_networks_are_not_served(folder: Path) -> None:
    settings = serving.Settings("pictures", str(folder), "127.0.0.1", 0, "10.1.0.0/16")
    with serving.Server(settings) as served:
        assert not served.verify_request(None, ("10.2.0.1", 700))
        assert served.verify_request(None, ("10.1.9.9", 700))


def test_who_looks_after_the_server_reaches_it_whatever_network_is_served(folder: Path) -> None:
    settings = serving.Settings("pictures", str(folder), "127.0.0.5", 0, "10.1.0.0/16")
    with serving.Server(settings) as served:
        assert served.verify_request(None, ("127.0.0.5", 700))


def test_those_who_only_hold_connections_keep_out_nobody(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(serving, "_MOST_CLIENTS", 8)
    served = request.getfixturevalue("server")
    with ExitStack() as held:
        for number in range(20):
            end = held.enter_context(socket.create_connection(("127.0.0.1", served.port), 10))
            if number % 2:
                end.sendall(struct.pack(">I", 60_000) + b"half a call")
        assert process.answers("127.0.0.1", served.port)


def test_pieces_without_bytes_do_not_go_on_for_ever(server: serving.Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.sendall(bytes(4))
        assert connection.recv(1) == b""


def test_a_small_request_has_no_answer_of_any_size(tree: Tree, folder: Path) -> None:
    many = folder / "many"
    many.mkdir()
    for number in range(200):
        (many / f"{number:03}-{'x' * 200}").touch()
    handle = u32(PUTFH) + opaque(tree.handle(at(tree, "many")))
    listing = u32(READDIR) + u64(0) + bytes(8) + u32(1 << 30) + u32(1 << 30) + u32(0)
    status, _ = ended(tree, handle, *[listing] * 60)
    assert status == Status.RESOURCE
    assert len(serving.answered(tree, call(handle, *[listing] * 60))) < 4 << 20


def test_a_listing_holds_what_came_within_one_tick_of_the_disks_clock(tree: Tree, folder: Path) -> None:
    train, changed = folder / "train", (folder / "train").stat().st_mtime_ns
    assert len(tree.listing(at(tree, "train"))) == 2
    (train / "third").touch()
    os.utime(train, ns=(changed, changed))
    assert len(tree.listing(at(tree, "train"))) == 3


def test_listings_are_kept_within_bounds(tree: Tree, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.fileserver.nfs.tree._LISTED_NAMES", 10)
    for number in range(6):
        made = folder / f"folder-{number}"
        made.mkdir()
        for name in range(4):
            (made / str(name)).touch()
        os.utime(made, (1, 1))
        assert tree.listing(at(tree, made.name)) == tree.listing(at(tree, made.name))
    assert sum(len(names) for _, names in tree._listings.values()) == 8
