"""Data assets: versions that never change, verified when they are read; v1's Dataset over them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from tests.integration.server.conftest import Site, on_both_databases
from tests.integration.storage.conftest import Container, shared_by_module

from muster import Dataset, Datastore, Workspace
from muster.client.storage import Storage
from muster.client.workspace import find_workspace
from muster.errors import Conflict, JobError, MusterError, NotFound
from muster.wire.data.assets import NewAsset
from muster.wire.data.datastores import NewDatastore


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Site:
    return shared_by_module(request)


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    folder = tmp_path / "digits"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.bin").write_bytes(b"a" * 3_000_000)
    (folder / "sub/b.txt").write_text("b")
    return folder


@on_both_databases
def test_a_local_folder_becomes_versions_with_sizes_and_hashes(storage: Storage, digits: Path, tmp_path: Path) -> None:
    first = storage.upload_asset(digits, NewAsset("digits", ""), "workspaceblobstore")
    second = storage.upload_asset(digits / "sub/b.txt", NewAsset("digits", ""), "workspaceblobstore")
    assert (first.version, first.type, first.num_files, first.size) == ("1", "uri_folder", 2, 3_000_001)
    assert (second.version, second.type) == ("2", "uri_file")
    assert [(entry.path, entry.sha256) for entry in storage.manifest("digits", "1")] == [
        ("a.bin", hashlib.sha256(b"a" * 3_000_000).hexdigest()),
        ("sub/b.txt", hashlib.sha256(b"b").hexdigest()),
    ]
    storage.download_asset("digits", "1", tmp_path / "back")
    assert (tmp_path / "back/sub/b.txt").read_text() == "b"
    storage.download_asset("digits", None, tmp_path / "newest")
    assert (tmp_path / "newest/b.txt").read_text() == "b"
    # A script that names its version runs again.
    assert storage.upload_asset(digits, NewAsset("digits", "", "1"), "workspaceblobstore") == first
    with pytest.raises(Conflict, match="digits:1 exists with other data, and what exists never changes"):
        storage.upload_asset(digits / "sub/b.txt", NewAsset("digits", "", "1"), "workspaceblobstore")
    with pytest.raises(NotFound, match="has no version 9"):
        storage.asset("digits", "9")


@on_both_databases
def test_a_version_is_archived_and_removed_and_its_number_is_not_given_again(
    site: Site, storage: Storage, digits: Path
) -> None:
    for text in ("one", "two"):
        (digits / "sub/b.txt").write_text(text)
        storage.upload_asset(digits, NewAsset("life", ""), "workspaceblobstore")
    assert storage.archive_asset("life", "2", archived=True).archived_at is not None
    assert storage.asset("life").version == "1"
    assert [item.version for item in storage.assets("life")] == ["1"]
    assert [item.version for item in storage.assets("life", archived=True)] == ["2", "1"]
    run = site.run(command="sleep 600", inputs={"x": {"type": "uri_folder", "path": "azureml:life:2"}})
    with pytest.raises(Conflict, match=f"life:2 is used by {run}"):
        storage.delete_asset("life", "2")
    site.client.cancel(run, force=True)
    site.wait(run)
    used = storage.delete_asset("life", "2")
    assert (used.active, used.ended, used.last) == ((), 1, (run,))
    with pytest.raises(NotFound, match="life:2 was removed"):
        storage.asset("life", "2")
    with pytest.raises(Conflict, match="there was a data asset life:2"):
        storage.create_asset(NewAsset("life", storage.asset("life").address, "2"))
    (digits / "sub/b.txt").write_text("three")
    assert storage.upload_asset(digits, NewAsset("life", ""), "workspaceblobstore").version == "3"


def test_an_asset_whose_place_was_written_to_is_refused(
    site: Site, storage: Storage, digits: Path, tmp_path: Path
) -> None:
    storage.create_datastore(NewDatastore("here", "local", {"path": str(digits)}))
    storage.create_asset(NewAsset("here", "azureml://datastores/here/paths/"))
    (digits / "sub/b.txt").write_text("c")
    with pytest.raises(MusterError, match="has changed"):
        storage.download_asset("here", None, tmp_path / "back")
    run = site.run(
        command="cat ${{inputs.x}}/sub/b.txt",
        inputs={"x": {"path": "azureml:here@latest", "mode": "download"}},
    )
    view = site.wait(run)
    assert view["status"] == "Failed", view["verdict"]


def test_a_job_cannot_spoil_an_asset_of_the_workspace(site: Site, storage: Storage, digits: Path) -> None:
    made = storage.upload_asset(digits, NewAsset("firm", ""), "workspaceblobstore")
    place = site.folder / ".muster/store/data" / made.address.partition("/paths/")[2]
    assert (place / "sub/b.txt").stat().st_mode & 0o222 == 0
    inputs = {"x": {"path": "azureml:firm:1"}, "f": {"path": "azureml:firmfile:1"}}
    storage.upload_asset(digits / "sub/b.txt", NewAsset("firmfile", ""), "workspaceblobstore")
    run = site.run(command="cat ${{inputs.x}}/sub/b.txt ${{inputs.f}}; echo c > ${{inputs.x}}/sub/b.txt", inputs=inputs)
    assert site.wait(run)["status"] == "Failed"
    assert site.log(run).startswith(b"bb")
    assert (place / "sub/b.txt").read_text() == "b"


def test_an_asset_that_was_changed_behind_its_back_is_given_to_no_job(
    site: Site, storage: Storage, digits: Path, tmp_path: Path
) -> None:
    made = storage.upload_asset(digits, NewAsset("soft", ""), "workspaceblobstore")
    file = site.folder / ".muster/store/data" / made.address.partition("/paths/")[2] / "sub/b.txt"
    file.chmod(0o644)
    file.write_text("b")
    same = site.run(command="cat ${{inputs.x}}/sub/b.txt", inputs={"x": {"path": "azureml:soft:1"}})
    assert site.wait(same)["status"] == "Completed", "the same content again is the same asset"
    file.write_text("c")
    other = site.wait(site.run(command="true", inputs={"x": {"path": "azureml:soft:1"}}))
    assert other["verdict"]["code"] == "data_unavailable"
    assert "is not what was registered as soft:1" in other["verdict"]["message"]
    file.write_text("longer")
    with pytest.raises(Conflict, match=r"sub/b\.txt of the data asset soft:1 has changed"):
        storage.download_asset("soft", None, tmp_path / "back")


def test_what_cannot_become_an_asset_is_refused_before_anything_is_sent(storage: Storage, digits: Path) -> None:
    storage.upload_asset(digits, NewAsset("once", ""), "workspaceblobstore")
    before = storage.files("workspaceblobstore", "assets")
    (digits / "sub/b.txt").write_text("changed")
    for asset, message in (
        (NewAsset("once", "", "1"), "once:1 exists"),
        (NewAsset("a name", ""), "cannot be the name of a data asset"),
        (NewAsset("once", "", type="uri_file"), "is a folder, and the type given is uri_file"),
    ):
        with pytest.raises((Conflict, JobError), match=message):
            storage.upload_asset(digits, asset, "workspaceblobstore")
    assert storage.files("workspaceblobstore", "assets") == before


def test_an_asset_has_the_type_of_what_is_found(storage: Storage, blob: Container) -> None:
    blob.put("kinds/one.bin", b"one")
    address = "azureml://datastores/blob/paths/kinds"
    assert storage.create_asset(NewAsset("kind", address)).type == "uri_folder"
    assert storage.create_asset(NewAsset("kind", f"{address}/one.bin")).type == "uri_file"
    with pytest.raises(JobError, match="is a file"):
        storage.create_asset(NewAsset("kind", f"{address}/one.bin", type="uri_folder"))


def test_hashes_of_remote_data_are_pinned_by_the_first_download(site: Site, blob: Container, storage: Storage) -> None:
    blob.put("data/a", b"one")
    made = storage.create_asset(NewAsset("far", "azureml://datastores/blob/paths/data"))
    assert made.digest is None and made.size == 3
    run = site.run(command="cat ${{inputs.x}}/a", inputs={"x": {"path": "azureml:far@latest", "mode": "download"}})
    assert site.wait(run)["status"] == "Completed"
    assert site.log(run) == b"one"
    assert site.view(run)["spec"]["inputs"]["x"]["path"] == "azureml:far:1"
    assert storage.asset("far").digest is not None
    assert storage.manifest("far")[0].sha256 == hashlib.sha256(b"one").hexdigest()


def test_a_job_with_data_that_is_not_there_is_refused_before_anything_starts(site: Site) -> None:
    before = [run.id for run in site.client.runs()]
    wrong = {
        "azureml://datastores/nowhere/paths/x": "inputs.x: there is no datastore 'nowhere'",
        "azureml:nothing:1": "inputs.x: there is no data asset 'nothing'",
        "azureml://datastores/workspaceblobstore/paths/none": "does not exist",
        "azureml://datastores/workspaceblobstore/paths/../../x": "leaves its store",
        "https://acct.blob.core.windows.net/c?sig=x": "holds a credential",
    }
    for path, message in wrong.items():
        with pytest.raises((JobError, NotFound), match=message):
            site.run(command="true", inputs={"x": {"path": path}})
    with pytest.raises(JobError, match="is a folder"):
        site.run(command="true", inputs={"x": {"type": "uri_file", "path": "azureml://datastores/workspaceblobstore"}})
    twice = {name: {"path": "azureml://datastores/workspaceblobstore/paths/out"} for name in ("a", "b")}
    with pytest.raises(JobError, match=r"outputs.b: .* is the place of outputs.a too"):
        site.run(command="true", outputs=twice)
    for path, message in {
        "https://host/x": "not in any datastore",
        "results": "no address that can be written",
    }.items():
        with pytest.raises(JobError, match=message):
            site.run(command="true", outputs={"o": {"path": path}})
    assert [run.id for run in site.client.runs()] == before


def test_datasets_of_v1_work_over_datastores_and_assets(site: Site, blob: Container, digits: Path) -> None:
    workspace = Workspace(ref=find_workspace(site.folder))
    store = Datastore.get(workspace, "blob")
    uploaded = Dataset.File.upload_directory(digits, (store, "up"))
    assert uploaded.to_path() == ["/a.bin", "/sub/b.txt"]
    registered = uploaded.register(workspace, "numbers", create_new_version=True)
    assert registered.path == "azureml:numbers:1"
    # A notebook runs again; other data under the name is refused.
    assert uploaded.register(workspace, "numbers").path == "azureml:numbers:1"
    with pytest.raises(JobError, match="there is a dataset 'numbers' with other data"):
        Dataset.File.upload_directory(digits / "sub", (store, "up2")).register(workspace, "numbers")
    again = Dataset.get_by_name(workspace, "numbers")
    got = again.download(str(digits.parent / "got"))
    assert sorted(Path(path).name for path in got) == ["a.bin", "b.txt"]
    assert workspace.get_default_datastore().name == "workspaceblobstore"
    assert store.download(str(digits.parent / "more"), prefix="up/sub") == 1
    assert (digits.parent / "more/up/sub/b.txt").read_text() == "b"
    workspace.client.close()
