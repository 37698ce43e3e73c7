"""Datastores as the server reaches them: what fails is explained, and never shows what opens the store."""

from __future__ import annotations

import errno
from datetime import datetime
from pathlib import Path

import pytest

from muster.errors import AccessDenied, Conflict, DiskFull, JobError, MissingExtra, NotFound
from muster.storage.connectors import datastore
from muster.storage.connectors.datastore import open_datastore
from muster.storage.connectors.filesystems import version_of
from muster.storage.kinds import FsspecAddress, LocalFolder, StoreSpec, make_store
from muster.store.remote import Info

BLOB = make_store("blob", "azure-blob", {"account": "a", "container": "c"}, {"account_key": "U0VDUkVUU0VDUkVU"})


def test_a_missing_package_names_the_extra() -> None:
    with pytest.raises(MissingExtra) as caught:
        datastore._library("azure.nowhere")
    assert "[azure]" in caught.value.hint and "pip install" in caught.value.hint


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError("x"), NotFound),
        (PermissionError("U0VDUkVUU0VDUkVU"), AccessDenied),
        (OSError(errno.EROFS, "Read-only file system"), AccessDenied),
        (OSError(errno.ENOSPC, "No space left on device"), DiskFull),
        (ValueError("GET https://a/c?sv=1&sig=U0VDUkVUU0VDUkVU failed"), Exception),
        (RuntimeError("key U0VDUkVUU0VDUkVU is wrong"), Exception),
    ],
)
def test_what_a_library_raises_names_the_datastore_and_hides_the_credential(error: Exception, kind: type) -> None:
    refusal = datastore.refusal_of(error, BLOB)
    assert isinstance(refusal, kind)
    assert "the datastore blob (https://a.blob.core.windows.net/c)" in str(refusal)
    assert "U0VDUkVU" not in str(refusal)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no folder"):
        open_datastore(StoreSpec("x", LocalFolder(str(tmp_path / "none"))))


def test_files_of_a_folder_are_listed_read_and_written_whole(tmp_path: Path) -> None:
    way = open_datastore(StoreSpec("x", LocalFolder(str(tmp_path))))
    assert way.write("a/b", [b"01234", b"56789"]) == 10
    assert [(entry.path, entry.size) for entry in way.entries("")] == [("a/b", 10)]
    assert [entry.path for entry in way.entries("a")] == ["b"]
    assert b"".join(way.read("a/b", 3, 4)) == b"3456"
    with pytest.raises(Conflict, match="exists already"):
        way.write("a/b", [b"x"], fresh=True)
    with pytest.raises(JobError, match="damaged"):
        way.write("a/c", [b"x"], sha256="0" * 64)
    assert way.entry("a/c") is None
    first = way.entry("a/b")
    way.write("a/b", [b"changed!!!"])
    second = way.entry("a/b")
    assert first and second and first.etag != second.etag
    way.remove("a/b")
    assert list(way.entries("")) == []


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/x", "a//b", "."])
def test_paths_stay_below(tmp_path: Path, path: str) -> None:
    way = open_datastore(StoreSpec("x", LocalFolder(str(tmp_path))))
    with pytest.raises(JobError):
        way.write(path, [b"x"])


def test_a_file_elsewhere_is_called_the_same_in_a_listing_and_alone() -> None:
    way = open_datastore(StoreSpec("ram", FsspecAddress("memory://versions")))
    way.write("a/b", [b"0123"])
    (listed,), alone = list(way.entries("")), way.entry("a/b")
    assert alone is not None and (listed.path, listed.size) == ("a/b", 4)
    assert (listed.size, listed.etag) == (alone.size, alone.etag)
    assert way.entry("a") is None and way.entry("a/c") is None
    way.remove("a/b")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"etag": '"0x1"', "size": 1}, {"etag": '"0x2"', "size": 1}),
        ({"mtime": 1.0, "size": 1}, {"mtime": 2.0, "size": 1}),
        ({"LastModified": datetime(2026, 1, 1), "size": 1}, {"LastModified": datetime(2026, 1, 2), "size": 1}),
        ({"size": 1}, {"size": 2}),
    ],
)
def test_a_changed_file_is_called_otherwise(one: Info, other: Info) -> None:
    assert version_of(one) == version_of(dict(one))
    assert version_of(one) != version_of(other)


def test_what_can_only_be_read_and_an_unknown_authority_say_what_to_do() -> None:
    assert "can only be read" in str(datastore.refusal_of(NotImplementedError(), BLOB))
    unknown = OSError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    assert "SSL_CERT_FILE" in datastore.refusal_of(unknown, BLOB).hint
    assert "`muster datastore show blob`" in datastore.refusal_of(OSError("reset"), BLOB).hint


def test_a_store_that_cannot_be_written_to_is_tested_read_only() -> None:
    assert "--read-only" in (datastore.refusal_of(OSError(errno.EROFS, "x"), BLOB).hint or "")
    assert "--secret-options" in (datastore.refusal_of(TypeError("unexpected 'nonsense'"), BLOB).hint or "")
