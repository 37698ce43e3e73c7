"""Code folders: what goes along, what stays behind, what is refused, what is sent."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sites.rest_server import Reply, Request, RestServer

from muster.client import snapshot
from muster.client.api import Client
from muster.client.snapshot import FileChanged, push, scan
from muster.errors import JobError
from muster.host.http import Address
from muster.wire.code import digest_of


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    write(folder, {"train.py": "print(1)\n", "pkg/a.py": "a", "pkg/b.py": "b"})
    return folder


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_a_manifest_is_sorted_and_names_content_and_mode(code: Path) -> None:
    (code / "train.py").chmod(0o700)
    (code / "pkg/a.py").chmod(0o600)
    files = scan(code).files
    assert list(files) == ["pkg/a.py", "pkg/b.py", "train.py"]
    assert files["train.py"] == (hashlib.sha256(b"print(1)\n").hexdigest(), 9, 0o755)
    assert files["pkg/a.py"][2] == 0o644


def test_the_digest_depends_on_the_files_alone(code: Path, tmp_path: Path) -> None:
    write(tmp_path / "copy", {"train.py": "print(1)\n", "pkg/a.py": "a", "pkg/b.py": "b"})
    assert scan(code).digest == scan(tmp_path / "copy").digest
    (tmp_path / "copy/pkg/b.py").write_text("c")
    assert scan(code).digest != scan(tmp_path / "copy").digest


def test_the_digest_does_not_depend_on_order_or_kind_of_sequence() -> None:
    assert digest_of({"a": ["0", 1, 2], "b": ["1", 2, 3]}) == digest_of({"b": ("1", 2, 3), "a": ("0", 1, 2)})


def test_a_single_script_is_a_snapshot(code: Path) -> None:
    assert list(scan(code / "train.py").files) == ["train.py"]


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="no code folder"):
        scan(tmp_path / "none")


def test_what_no_job_needs_always_stays_behind(code: Path) -> None:
    write(
        code, {".git/config": "", ".muster/x": "", "pkg/__pycache__/a.pyc": "", "env/pyvenv.cfg": "", "env/lib/x": ""}
    )
    assert list(scan(code).files) == ["pkg/a.py", "pkg/b.py", "train.py"]


@pytest.mark.parametrize("name", ["outputs", "logs"])
def test_results_of_earlier_runs_stay_behind_with_a_notice(code: Path, name: str) -> None:
    before = scan(code).digest
    write(code, {f"{name}/model.pt": "old", f"{name}/deep/more.txt": "old"})
    manifest = scan(code)
    assert list(manifest.files) == ["pkg/a.py", "pkg/b.py", "train.py"]
    assert manifest.digest == before
    (notice,) = manifest.notices
    assert notice.startswith(f"{name}/ in the code folder is not sent: it is where a run puts its own results")


def test_results_behind_a_link_that_leaves_the_folder_stay_behind_too(code: Path, tmp_path: Path) -> None:
    write(tmp_path / "scratch", {"model.pt": "old"})
    (code / "outputs").symlink_to(tmp_path / "scratch")
    manifest = scan(code)
    assert list(manifest.files) == ["pkg/a.py", "pkg/b.py", "train.py"]
    assert len(manifest.notices) == 1


def test_nothing_is_said_of_a_folder_for_results_that_is_empty_or_ignored(code: Path) -> None:
    write(code, {"outputs/.gitkeep": "", "logs/run.txt": "old", ".gitignore": "logs/\n"})
    manifest = scan(code)
    assert list(manifest.files) == [".gitignore", "pkg/a.py", "pkg/b.py", "train.py"]
    assert manifest.notices == ()


def test_a_package_that_is_called_outputs_and_folders_further_down_are_code(code: Path) -> None:
    write(code, {"outputs/__init__.py": "", "outputs/writer.py": "", "pkg/outputs/a.txt": "", "pkg/logs/b.txt": ""})
    manifest = scan(code)
    assert {"outputs/__init__.py", "outputs/writer.py", "pkg/outputs/a.txt", "pkg/logs/b.txt"} <= set(manifest.files)
    assert manifest.notices == ()


def test_what_is_not_code_is_taken_with_its_outputs_and_in_spite_of_ignore_files(code: Path) -> None:
    write(code, {"outputs/model.pt": "", "logs/x": "", ".gitignore": "pkg/\n"})
    assert {"outputs/model.pt", "logs/x", "pkg/a.py"} <= set(scan(code, is_code=False).files)


def test_a_gitignore_and_nested_ones_are_honoured(code: Path) -> None:
    write(code, {".gitignore": "*.log\n/data/\n", "x.log": "", "pkg/y.log": "", "data/big": "", "pkg/data/kept": ""})
    write(code, {"pkg/.gitignore": "b.py\n!y.log\n"})
    assert list(scan(code).files) == [
        ".gitignore",
        "pkg/.gitignore",
        "pkg/a.py",
        "pkg/data/kept",
        "pkg/y.log",
        "train.py",
    ]


def test_a_musterignore_wins_over_the_others(code: Path) -> None:
    write(code, {".musterignore": "a.py\n", ".amlignore": "*\n", ".gitignore": "*\n"})
    assert "pkg/b.py" in scan(code).files
    assert "pkg/a.py" not in scan(code).files


def test_an_amlignore_wins_over_gitignores(code: Path) -> None:
    write(code, {".amlignore": "pkg/\n", ".gitignore": "train.py\n"})
    assert "train.py" in scan(code).files
    assert "pkg/a.py" not in scan(code).files


def test_a_link_inside_the_folder_is_kept_as_content(code: Path) -> None:
    (code / "link.py").symlink_to("pkg/a.py")
    (code / "more").symlink_to("pkg")
    files = scan(code).files
    assert files["link.py"] == files["pkg/a.py"] == files["more/a.py"]


def test_a_link_that_leaves_the_folder_is_refused_by_name(code: Path) -> None:
    (code / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(JobError, match=r"passwd -> /etc/passwd"):
        scan(code)


def test_a_link_that_leads_in_a_circle_is_refused(code: Path) -> None:
    (code / "pkg/up").symlink_to("..")
    with pytest.raises(JobError, match="pkg/up"):
        scan(code)


def test_a_link_that_leads_nowhere_and_a_pipe_are_left_out_with_a_notice(code: Path) -> None:
    (code / ".#lock").symlink_to("nobody@host.1")
    os.mkfifo(code / "pipe")
    manifest = scan(code)
    assert list(manifest.files) == ["pkg/a.py", "pkg/b.py", "train.py"]
    assert len(manifest.notices) == 2


def test_a_folder_that_is_too_large_names_its_largest_files_and_the_ignore_file(code: Path) -> None:
    for index in range(12):
        (code / f"w{index:02}.bin").write_bytes(b"x" * (1000 + index))
    with pytest.raises(JobError) as caught:
        scan(code, limit_bytes=12_000)
    assert "w10.bin" in str(caught.value)
    assert "w00.bin" not in str(caught.value)
    assert str(code / ".musterignore") in caught.value.hint


def test_the_size_limit_stops_the_scan_before_anything_is_read(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (code / "huge.bin").open("wb") as sparse:
        sparse.truncate(2 << 30)
    monkeypatch.setattr(hashlib, "sha256", lambda *a: pytest.fail("a file was hashed"))
    with pytest.raises(JobError, match=r"2\.00 GiB +huge\.bin"):
        scan(code)


def test_a_name_that_is_not_utf8_is_refused(code: Path) -> None:
    with open(os.fsencode(code) + b"/bad\xff.py", "wb"):  # noqa: PTH123
        pass
    with pytest.raises(JobError, match="UTF-8"):
        scan(code)


def test_a_file_that_keeps_changing_is_noticed(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fstat

    def restless(fd: int) -> os.stat_result:
        os.utime(code / "train.py", ns=(0, real(fd).st_mtime_ns + 1))
        return real(fd)

    monkeypatch.setattr(snapshot.os, "fstat", restless)
    with pytest.raises(FileChanged, match=r"train\.py"):
        scan(code / "train.py")


class Store:
    """What a server keeps of the blobs and snapshots that reach it."""

    def __init__(self, server: RestServer) -> None:
        self.blobs: dict[str, bytes] = {}
        self.snapshots: dict[str, dict[str, list[object]]] = {}
        server.on("POST", "/api/v1/snapshots/missing", self.missing)
        server.on("POST", "/api/v1/blobs", self.put_blobs)
        server.on("PUT", "/api/v1/snapshots/[0-9a-f]+", self.put_snapshot)

    def missing(self, request: Request) -> Reply:
        files = request.json["files"]
        digest = digest_of(files)
        lacking = sorted({entry[0] for entry in files.values()} - self.blobs.keys())
        return Reply({"digest": digest, "missing": lacking, "known": digest in self.snapshots})

    def put_blobs(self, request: Request) -> Reply:
        body = io.BytesIO(request.body)
        while line := body.readline():
            head = json.loads(line)
            data = body.read(head["size"])
            assert hashlib.sha256(data).hexdigest() == head["sha256"]
            self.blobs[head["sha256"]] = data
        return Reply({"stored": 1})

    def put_snapshot(self, request: Request) -> Reply:
        self.snapshots[request.path.rsplit("/", 1)[1]] = request.json["files"]
        return Reply({}, status=201)


@pytest.fixture
def server() -> Iterator[RestServer]:
    with RestServer() as running:
        yield running


def test_a_snapshot_arrives_whole_and_a_second_time_nothing_is_sent(server: RestServer, code: Path) -> None:
    store, client = Store(server), Client(Address(server.url))
    write(code, {"pkg/same.py": "a", "empty": ""})
    digest = push(client, scan(code))
    files = store.snapshots[digest]
    assert {name: store.blobs[str(entry[0])] for name, entry in files.items()} == {
        "empty": b"", "pkg/a.py": b"a", "pkg/b.py": b"b", "pkg/same.py": b"a", "train.py": b"print(1)\n"
    }  # fmt: skip
    before = len(server.requests)
    assert push(client, scan(code)) == digest
    assert [request.path for request in server.requests[before:]] == ["/api/v1/snapshots/missing"]
    client.close()


def test_only_changed_files_are_sent_again(server: RestServer, code: Path) -> None:
    store, client = Store(server), Client(Address(server.url))
    push(client, scan(code))
    (code / "train.py").write_text("print(2)\n")
    known = set(store.blobs)
    push(client, scan(code))
    assert [store.blobs[sha256] for sha256 in store.blobs.keys() - known] == [b"print(2)\n"]
    client.close()


def test_a_file_that_changed_since_the_scan_is_not_sent_as_something_else(server: RestServer, code: Path) -> None:
    store, client = Store(server), Client(Address(server.url))
    manifest = scan(code)
    (code / "train.py").write_text("print(3)\n")
    with pytest.raises(FileChanged, match=r"train\.py"):
        push(client, manifest)
    assert store.snapshots == {}
    client.close()
