"""Unpacking archives that came from elsewhere: files and folders below one folder, and nothing else."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from muster.host.files import unpack


def made(*members: tarfile.TarInfo, content: bytes = b"text") -> tarfile.TarFile:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for member in members:
            member.size = len(content) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(content) if member.isreg() else None)
    written.seek(0)
    return tarfile.open(fileobj=written)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.uid, info.gid = kind, link, mode, 12345, 12345
    return info


def test_files_are_the_callers_own(tmp_path: Path) -> None:
    folder = member("./a", tarfile.DIRTYPE, mode=0o2777)
    with made(folder, member("./a/run", mode=0o4777)) as tar:
        unpack(tar, tmp_path)
    status = (tmp_path / "a" / "run").stat()
    assert (tmp_path / "a" / "run").read_text() == "text" and status.st_uid == os.getuid()
    assert status.st_mode & 0o7777 == 0o755 and (tmp_path / "a").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    "members",
    [
        [member("../out")],
        [member("/tmp/out")],
        [member("a/../../out")],
        [member("pipe", tarfile.FIFOTYPE)],
        [member("device", tarfile.CHRTYPE)],
        [member("link", tarfile.SYMTYPE, "/etc")],
    ],
    ids=lambda members: members[0].name,
)
def test_what_leads_out_or_is_no_file_is_refused(members: list[tarfile.TarInfo], tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    with made(*members) as tar, pytest.raises(ValueError):
        unpack(tar, inside)
    assert [path.name for path in tmp_path.iterdir()] == ["inside"] and not list(inside.iterdir())


def test_links_may_point_anywhere_but_nothing_is_written_through_them(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    link = member("link", tarfile.SYMTYPE, str(outside))
    with made(link) as tar:
        unpack(tar, inside, links=True)
    assert (inside / "link").readlink() == outside
    (inside / "link").unlink()
    with made(link, member("link/file")) as tar, pytest.raises(ValueError, match="leads out"):
        unpack(tar, inside, links=True)
    (inside / "link").unlink()
    (outside / "secret").write_text("secret")
    with made(member("hard", tarfile.LNKTYPE, "../outside/secret")) as tar, pytest.raises(ValueError):
        unpack(tar, inside, links=True)
    assert [path.name for path in outside.iterdir()] == ["secret"]
