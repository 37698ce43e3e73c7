"""Copies to, from and between datastores, as people type them: against a real blob server and a real workspace."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from tests.conftest import MUSTER
from tests.integration.server.conftest import Site
from tests.integration.storage.conftest import ACCOUNT, ACCOUNT_KEY, Azurite, Container

from muster.client.storage import Storage
from muster.client.transfer.access import OpenFolder
from muster.client.transfer.copying import Choices, carry_out, prepare
from muster.client.transfer.places import parse_place
from muster.errors import Conflict
from muster.storage.connectors.base import BLOCK_BYTES
from muster.wire.data.assets import NewAsset
from muster.wire.data.datastores import NewDatastore

A = "azureml://datastores/workspaceblobstore/paths"
BLOB = "azureml://datastores/blob/paths"


class Unwatched:
    def begin(self, name: str) -> None: ...
    def expect(self, total: int) -> None: ...
    def add(self, count: int) -> None: ...


@pytest.fixture
def site(shared_site: Site) -> Site:
    return shared_site


def muster(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([MUSTER, *arguments], cwd=folder, capture_output=True, timeout=120, check=False)


def copy(storage: Storage, source: object, target: object, **choices: bool) -> list[str]:
    """What was copied."""
    prepared = prepare(storage, str(source), str(target), Choices(**choices), Unwatched())
    carry_out(prepared, storage, Unwatched())
    return [item.name for item in prepared.plan.copies]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def make(folder: Path) -> dict[str, bytes]:
    (folder / "sub folder").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "ä%20.txt").write_text("signs")
    (folder / "empty").write_text("")
    (folder / "sub folder" / "large").write_bytes(os.urandom(BLOCK_BYTES + 5))
    return content(folder)


def container_sas(blob: Container) -> str:
    permission = ContainerSasPermissions(read=True, write=True, delete=True, list=True, create=True)
    return generate_container_sas(
        ACCOUNT, blob.name, account_key=ACCOUNT_KEY, permission=permission, expiry="2099-01-01T00:00:00Z"
    )


@pytest.mark.parametrize("way", ["direct", "through the server"])
def test_a_folder_goes_to_a_container_and_back_directly_or_through_the_server(
    blob: Container, storage: Storage, tmp_path: Path, way: str
) -> None:
    if way != "direct":
        # A SAS for the whole container is wider than any copy, and stays with the server.
        blob.register(credential={"sas": container_sas(blob)})
    assert OpenFolder(storage, parse_place(f"{BLOB}/x"), "write").is_direct == (way == "direct")
    made = make(tmp_path / "source")
    assert len(copy(storage, tmp_path / "source", f"{BLOB}/photos")) == 4
    assert blob.names() == sorted(f"photos/{name}" for name in made)
    assert copy(storage, tmp_path / "source", f"{BLOB}/photos") == []
    assert len(copy(storage, f"{BLOB}/photos", tmp_path / "back")) == 4
    assert content(tmp_path / "back") == made
    assert copy(storage, f"{BLOB}/photos", tmp_path / "back") == []
    (tmp_path / "source" / "a.txt").write_text("b")
    with pytest.raises(Conflict, match=r"^a\.txt at .*photos is there with another content"):
        copy(storage, tmp_path / "source", f"{BLOB}/photos")
    assert copy(storage, tmp_path / "source", f"{BLOB}/photos", overwrite=True) == ["a.txt"]
    with pytest.raises(Conflict, match=r"^a\.txt at"):
        copy(storage, f"{BLOB}/photos", tmp_path / "back")
    (tmp_path / "source" / "empty").unlink()
    assert copy(storage, tmp_path / "source", f"{BLOB}/photos", overwrite=True, delete=True) == []
    assert "photos/empty" not in blob.names()


def test_between_two_datastores_a_file_gets_the_name_that_is_asked_for(
    blob: Container, storage: Storage, tmp_path: Path
) -> None:
    made = make(tmp_path / "source")
    copy(storage, tmp_path / "source", f"{A}/here")
    copy(storage, f"{A}/here", f"{BLOB}/there")
    assert blob.get("there/sub folder/large") == made["sub folder/large"]
    copy(storage, f"{A}/here/a.txt", f"{BLOB}/renamed.txt")
    assert blob.get("renamed.txt") == b"a"
    copy(storage, f"{A}/here/a.txt", f"{BLOB}/there")
    assert blob.get("there/a.txt") == b"a"
    copy(storage, f"{BLOB}/renamed.txt", tmp_path / "here.txt")
    assert (tmp_path / "here.txt").read_bytes() == b"a"


def test_what_others_put_into_a_container_is_compared_by_its_content(
    blob: Container, storage: Storage, tmp_path: Path
) -> None:
    blob.put("in/a", b"one")
    copy(storage, f"{BLOB}/in", tmp_path / "in")
    assert copy(storage, tmp_path / "in", f"{BLOB}/in") == []
    blob.put("in/a", b"two")
    with pytest.raises(Conflict, match="another content"):
        copy(storage, tmp_path / "in", f"{BLOB}/in")


def test_what_an_asset_holds_is_neither_overwritten_nor_removed(site: Site, storage: Storage, tmp_path: Path) -> None:
    make(tmp_path / "source")
    asset = storage.upload_asset(tmp_path / "source", NewAsset("kept", ""), "workspaceblobstore")
    copy(storage, f"azureml:kept:{asset.version}", tmp_path / "back")
    assert content(tmp_path / "back") == content(tmp_path / "source")
    (tmp_path / "source" / "a.txt").write_text("b")
    with pytest.raises(Conflict, match="never changes"):
        copy(storage, tmp_path / "source", asset.address, overwrite=True)
    removed = muster(site.folder, "data", "rm", f"{asset.address}", "-r", "--yes")
    assert removed.returncode == 2
    assert b"never changes" in removed.stderr
    assert len(storage.files("workspaceblobstore", asset.address.partition("/paths/")[2])) == 4


def test_a_killed_download_goes_on_when_it_is_typed_again(
    site: Site, blob: Container, azurite: Azurite, tmp_path: Path
) -> None:
    parts = os.urandom(6 * BLOCK_BYTES)
    blob.put("large", parts)
    command = [MUSTER, "data", "cp", f"{BLOB}/large", str(tmp_path / "here" / "large")]
    with subprocess.Popen(command, cwd=site.folder, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            journals = list((tmp_path / "here").glob(".muster-partial-*/journal.jsonl"))
            if journals and b'"block"' in journals[0].read_bytes():
                process.kill()
    assert subprocess.run(command, cwd=site.folder, timeout=120, check=False).returncode == 0
    assert (tmp_path / "here" / "large").read_bytes() == parts
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["large"]


def test_the_commands_say_what_they_did(site: Site, tmp_path: Path) -> None:
    make(tmp_path / "images")
    (tmp_path / "images" / ".amlignore").write_text("*.tmp\n")
    (tmp_path / "images" / "x.tmp").write_text("x")
    planned = muster(site.folder, "data", "cp", str(tmp_path / "images"), f"{A}/cli", "--dry-run", "--json")
    assert json.loads(planned.stdout)["dry_run"]
    done = muster(site.folder, "data", "cp", str(tmp_path / "images"), f"{A}/cli")
    assert b"left out, named by an ignore file: x.tmp" in done.stderr
    assert b"copied 5 files" in done.stderr
    shown = json.loads(muster(site.folder, "data", "ls", f"{A}/cli", "--json").stdout)
    assert [item["name"] for item in shown] == [".amlignore", "a.txt", "empty", "sub folder/", "ä%20.txt"]
    measured = json.loads(muster(site.folder, "data", "du", f"{A}/cli", "--json").stdout)
    assert measured[-1] == {"name": "total", "size": BLOCK_BYTES + 5 + 1 + 5 + 6, "files": 5}
    assert muster(site.folder, "data", "cat", f"{A}/cli/a.txt").stdout == b"a"
    refused = muster(site.folder, "data", "rm", f"{A}/cli")
    assert refused.returncode == 2
    assert b"is a folder with 5 files" in refused.stderr
    assert muster(site.folder, "data", "rm", f"{A}/cli", "-r", "-y").returncode == 0
    gone = muster(site.folder, "data", "ls", f"{A}/cli")
    assert gone.returncode == 2
    assert b"there is no file or folder" in gone.stderr


def test_names_that_are_hard_to_type_or_to_store(site: Site, storage: Storage, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("100%25.txt", "%41.txt", "new\nline", "esc\x1b[31mred"):
        (source / name).write_text(name)
    (source / "nothing").mkdir()
    address = f"{A}/hard"
    sent = muster(site.folder, "data", "cp", str(source), address)
    assert sent.returncode == 0 and b"left out, empty folders, which storages do not know: nothing/" in sent.stderr
    listed = muster(site.folder, "data", "ls", address).stdout
    assert b"new\\nline" in listed and b"esc\\x1b[31mred" in listed and b"\x1b" not in listed
    for name in ("100%25.txt", "%41.txt"):
        # As the list shows it, and as an address has it.
        for typed in (name, name.replace("%", "%25")):
            assert muster(site.folder, "data", "cat", f"{address}/{typed}").stdout == name.encode()
    (source / "back\\slash.txt").write_text("x")
    refused = muster(site.folder, "data", "cp", str(source), address)
    assert refused.returncode and b"back\\slash.txt: a name with a backslash cannot be stored" in refused.stderr
    (source / "back\\slash.txt").rename(source / os.fsdecode(b"bad\xff.txt"))
    refused = muster(site.folder, "data", "cp", str(source), address)
    assert refused.returncode and b"the name of the file bad\\xff.txt is not UTF-8" in refused.stderr


def test_a_link_out_of_a_datastore_is_left_out_and_named(site: Site, storage: Storage, tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    (root / "a.txt").write_text("a")
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "in").symlink_to(root / "a.txt")
    storage.create_datastore(NewDatastore("linked", "local", {"path": str(root)}))
    address = "azureml://datastores/linked/paths/"
    for command in (["ls", address], ["cp", address, str(tmp_path / "copy")]):
        said = muster(site.folder, "data", *command)
        assert said.returncode == 0 and b"links that lead out of the datastore: out" in said.stderr
    assert content(tmp_path / "copy") == {"a.txt": b"a", "in": b"a"}
    asset = storage.create_asset(NewAsset("linked", address))
    assert asset.num_files == 2


def test_advice_fits_what_went_wrong(site: Site, storage: Storage, tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    (root / "a.txt").write_text("right")
    storage.create_datastore(NewDatastore("spoilt", "local", {"path": str(root)}))
    storage.create_asset(NewAsset("spoilt", "azureml://datastores/spoilt/paths/"))
    (root / "a.txt").write_text("wrong")
    spoilt = muster(site.folder, "data", "download", "spoilt:1", "--to", str(tmp_path / "copy"))
    assert b"a.txt of the data asset spoilt:1 has changed since the asset was made" in spoilt.stderr
    assert b"Type the command again" not in spoilt.stderr
    refused = muster(site.folder, "data", "sync", str(root / "a.txt"), f"{A}/x")
    assert refused.returncode and b"sync is for folders" in refused.stderr
    (root / "deep").mkdir()
    (root / "deep" / "b.txt").write_text("b")
    rows = muster(site.folder, "data", "du", "azureml://datastores/spoilt").stdout.decode().split()
    assert "deep/" in rows and "a.txt" not in rows and "total" in rows


def test_a_dry_run_names_inputs_that_are_not_there(site: Site, tmp_path: Path) -> None:
    def planned(address: str) -> subprocess.CompletedProcess[bytes]:
        (tmp_path / "job.yml").write_text(f"command: echo\ninputs: {{data: {{path: '{address}'}}}}\n")
        command = [MUSTER, "run", str(tmp_path / "job.yml"), "--dry-run"]
        return subprocess.run(command, cwd=site.folder, capture_output=True, check=False, timeout=60)

    unknown = planned("azureml://datastores/nowhere/paths/a")
    assert unknown.returncode == 2 and b"inputs.data: there is no datastore 'nowhere'" in unknown.stderr
    assert b"--input data=PATH" in unknown.stderr
    missing = planned(f"{A}/not-there-yet")
    assert missing.returncode == 0 and b"not-there-yet holds no file now" in missing.stderr.replace(b"\n", b" ")
    make(tmp_path / "images")
    muster(site.folder, "data", "cp", str(tmp_path / "images"), f"{A}/planned")
    assert b"notice" not in planned(f"{A}/planned").stderr


def test_names_of_files_cannot_act_on_a_terminal(site: Site, tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "red\x1b[31m\n.txt").write_text("x")
    muster(site.folder, "data", "create", "odd", "--path", str(tmp_path / "odd"))
    shown = muster(site.folder, "data", "show", "odd", "--files").stdout
    assert rb"red\x1b[31m\n.txt" in shown and b"\x1b[31m" not in shown


def test_only_the_shards_and_their_index_are_left_behind_by_packing(site: Site, tmp_path: Path) -> None:
    make(tmp_path / "images")
    muster(site.folder, "data", "pack", str(tmp_path / "images"), str(tmp_path / "packed"), "--no-labels")
    left = sorted(path.name for path in (tmp_path / "packed").iterdir())
    assert left == ["shard-00000.tar", "shard-00000.tar.json", "shards.json"]
