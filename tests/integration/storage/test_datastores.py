"""Datastores: made, tried, forgotten; what opens them is never seen again."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from tests.conftest import MUSTER, processes_of, wait_until
from tests.integration.server.conftest import Site
from tests.integration.storage.conftest import ACCOUNT, ACCOUNT_KEY, Azurite, Container

from muster.client.storage import Storage
from muster.errors import AccessDenied, Conflict, JobError, MusterError, NotFound, UserError
from muster.wire.data.assets import NewAsset
from muster.wire.data.datastores import NewDatastore


@pytest.fixture
def site(shared_site: Site) -> Site:
    return shared_site


def muster(folder: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MUSTER, *arguments], cwd=folder, input=given, capture_output=True, text=True, timeout=120, check=False
    )


def end_server(site: Site) -> None:
    server = site.server()
    site.client.shutdown()
    wait_until(lambda: not server.is_running(), 30.0, "the end of the server")


def test_a_container_is_registered_from_the_command_line_and_its_key_is_nowhere_to_be_seen(
    site: Site, azurite: Azurite
) -> None:
    container = azurite.new_container()
    made = muster(
        site.folder, "datastore", "create", "blob", "--replace", "--account", ACCOUNT, "--container", container,
        "--endpoint", azurite.endpoint, "--account-key", "-", given=ACCOUNT_KEY,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    tried = muster(site.folder, "datastore", "test", "blob")
    assert "writes, reads back and removes a file" in tried.stderr
    assert azurite.names(container) == []
    shown = muster(site.folder, "datastore", "show", "blob", "--json")
    assert json.loads(shown.stdout)["credential"] == "account_key"
    everything = made.stdout + made.stderr + tried.stderr + shown.stdout + str(site.client.health())
    assert ACCOUNT_KEY not in everything
    end_server(site)
    kept = [path for path in (site.folder / ".muster").rglob("*") if path.is_file()]
    assert not [path for path in kept if ACCOUNT_KEY.encode() in path.read_bytes()]
    assert site.client.health()


def test_a_key_is_not_in_the_process_list_or_environment_of_anything(site: Site, blob: Container) -> None:
    blob.put("in/a", b"a")
    run = site.run(
        command="env; sleep 60",
        inputs={"x": {"path": "azureml://datastores/blob/paths/in", "mode": "download"}},
        outputs={"o": {"path": "azureml://datastores/blob/paths/out"}},
    )
    assert site.wait(run, "Running")["status"] == "Running"
    found = processes_of(site.folder)
    assert len(found) >= 3
    for process in found:
        described = [Path(f"/proc/{process.pid}/{name}") for name in ("cmdline", "environ")]
        assert not [path for path in described if path.exists() and ACCOUNT_KEY.encode() in path.read_bytes()]
    site.client.cancel(run, force=True)
    site.wait(run)
    assert ACCOUNT_KEY.encode() not in site.log(run)


@pytest.mark.parametrize(
    ("credential", "message"),
    [
        ({"account_key": "d3Jvbmcga2V5d3Jvbmcga2V5"}, "refuses its credential"),
        ({"sas": "sv=2020-02-10&sr=c&sp=rl&se=2001-01-01T00:00:00Z&sig=V1JPTkc%3D"}, "refuses its credential"),
    ],
)
def test_a_wrong_credential_is_said_without_showing_it(
    blob: Container, storage: Storage, credential: dict[str, str], message: str
) -> None:
    blob.register("wrong", credential=credential)
    with pytest.raises(AccessDenied, match=message) as caught:
        storage.test_datastore("wrong")
    assert "d3Jvbmcg" not in str(caught.value) and "V1JPTkc" not in str(caught.value)


def test_a_credential_that_only_reads_is_named_with_what_it_may_do(blob: Container, storage: Storage) -> None:
    sas = generate_container_sas(
        ACCOUNT,
        blob.name,
        account_key=ACCOUNT_KEY,
        permission=ContainerSasPermissions(read=True, list=True),
        expiry="2099-01-01T00:00:00Z",
    )
    blob.register("narrow", credential={"sas": sas})
    with pytest.raises(
        AccessDenied, match=r"may read, list, until 2099.*lists its files \(0\).*cannot be written"
    ) as why:
        storage.test_datastore("narrow")
    assert "--read-only" in (why.value.hint or "")
    assert storage.test_datastore("narrow", write=False)[-1] == "lists its files (0)"


def test_the_container_or_folder_is_made_when_that_is_asked_for(
    site: Site, azurite: Azurite, storage: Storage, tmp_path: Path
) -> None:
    made = muster(
        site.folder, "datastore", "create", "fresh", "--account", ACCOUNT, "--container", "made-here", "--create",
        "--endpoint", azurite.endpoint, "--account-key", "-", given=ACCOUNT_KEY,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert "notice: an account key opens everything in the account" in made.stderr
    assert azurite.names("made-here") == []
    body = NewDatastore("folder", "local", {"path": str(tmp_path / "new" / "one")})
    with pytest.raises(NotFound, match="--create"):
        storage.create_datastore(body)
    storage.create_datastore(replace(body, create=True))
    assert (tmp_path / "new" / "one").is_dir()
    assert "writes, reads back and removes a file" in storage.test_datastore("folder")
    with pytest.raises(JobError, match="only the account's key can make a container"):
        options = {"account": ACCOUNT, "container": "public", "endpoint": azurite.endpoint}
        storage.create_datastore(NewDatastore("public", "azure-blob", options, create=True))


def test_a_container_that_is_not_there_is_named(azurite: Azurite, storage: Storage) -> None:
    Container(azurite, "nowhere", storage).register("gone")
    with pytest.raises(NotFound, match=r"gone .*/nowhere"):
        storage.test_datastore("gone")


def test_a_service_that_does_not_answer_is_an_error_that_names_the_datastore(storage: Storage) -> None:
    options = {"account": "a", "container": "c", "endpoint": "http://127.0.0.1:1/a"}
    storage.create_datastore(NewDatastore("dead", "azure-blob", options))
    with pytest.raises(MusterError, match="the datastore dead"):
        storage.test_datastore("dead")


def test_files_go_into_a_container_and_come_back(site: Site, blob: Container, tmp_path: Path) -> None:
    source = tmp_path / "data"
    (source / "a b").mkdir(parents=True)
    (source / "a b/ü.bin").write_bytes(bytes(range(256)) * 40_000)
    (source / "empty").touch()
    sent = muster(site.folder, "data", "upload", str(source), "azureml://datastores/blob/paths/x/y")
    assert sent.returncode == 0, sent.stderr
    assert blob.names() == ["x/y/a b/ü.bin", "x/y/empty"]
    again = muster(site.folder, "data", "upload", str(source), "azureml://datastores/blob/paths/x/y")
    assert again.returncode == 0 and "2 files there already with the same content" in again.stderr
    got = muster(site.folder, "data", "download", "azureml://datastores/blob/paths/x/y", "--to", str(tmp_path / "back"))
    assert got.returncode == 0, got.stderr
    assert (tmp_path / "back/a b/ü.bin").read_bytes() == (source / "a b/ü.bin").read_bytes()


@pytest.mark.parametrize("path", ["../outside", "a/../../outside", "a/%2e%2e/%2e%2e/outside", "/etc/passwd"])
def test_a_path_cannot_leave_its_datastore(storage: Storage, site: Site, tmp_path: Path, path: str) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "store/link").symlink_to(tmp_path)
    body = NewDatastore("here", "local", {"path": str(tmp_path / "store")})
    storage.create_datastore(body, replace=True)
    with pytest.raises((JobError, NotFound)):
        site.client.calls.send("GET", f"/data/here/{path}")
    with pytest.raises(AccessDenied, match="leaves the datastore"):
        site.client.calls.send("GET", "/data/here/link/outside")
    with pytest.raises(AccessDenied, match="leaves the datastore"):
        site.client.calls.send("PUT", "/data/here/link/new", body=b"x")


def test_a_datastore_that_holds_an_asset_is_not_forgotten(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/a").write_text("a")
    storage.create_datastore(NewDatastore("kept", "local", {"path": str(tmp_path)}))
    storage.create_asset(NewAsset("x", "azureml://datastores/kept/paths/x"))
    with pytest.raises(Conflict, match="the data asset x:1 lies in kept"):
        storage.delete_datastore("kept")
    with pytest.raises(Conflict, match="already"):
        storage.create_datastore(NewDatastore("kept", "local", {"path": str(tmp_path)}))


def test_a_web_server_that_does_not_answer_is_no_empty_folder(storage: Storage) -> None:
    pytest.importorskip("aiohttp", reason="aiohttp is not installed (pip install 'muster-ml[azure]')")
    storage.create_datastore(NewDatastore("web", "fsspec", {"url": "http://127.0.0.1:1/x"}))
    with pytest.raises(UserError, match="the datastore web"):
        storage.test_datastore("web", write=False)


def test_a_datastore_that_a_run_uses_is_not_forgotten(site: Site, storage: Storage, tmp_path: Path) -> None:
    storage.create_datastore(NewDatastore("used", "local", {"path": str(tmp_path)}))
    output = {"o": {"path": "azureml://datastores/used/paths/out"}}
    run = site.run(command="until [ -e $MUSTER_STOP_FILE ]; do sleep 0.1; done", outputs=output)
    with pytest.raises(Conflict, match=f"the run {run} uses used"):
        storage.delete_datastore("used")
    site.client.cancel(run)
    site.wait(run)
    storage.delete_datastore("used")


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("local", {"path": "/there/is/none"}, "no folder /there/is/none on the server's machine"),
        ("local", {"path": "/tmp", "encrypted": True}, "the workspace has no key"),
        ("fsspec", {"url": "nonsense://x"}, "fsspec knows no nonsense://"),
    ],
)
def test_a_datastore_that_can_never_work_is_refused(
    storage: Storage, kind: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        storage.create_datastore(NewDatastore("never", kind, options))


def test_a_storage_that_fails_is_waited_for_and_the_run_says_so(site: Site, storage: Storage) -> None:
    options = {"account": "a", "container": "c", "endpoint": "http://127.0.0.1:1/a"}
    storage.create_datastore(NewDatastore("off", "azure-blob", options))
    run = site.run(command="true", inputs={"x": {"path": "azureml://datastores/off/paths/y"}})
    wait_until(lambda: "input x cannot be listed" in (site.view(run)["reason"] or ""), 40.0, "the reason")
    site.client.cancel(run)
    assert site.wait(run)["status"] == "Canceled"


def test_a_server_with_another_key_says_so_and_goes_on(site: Site, blob: Container, storage: Storage) -> None:
    end_server(site)
    (site.folder / ".muster/server/workspace.key").unlink()
    shown = {item.name: item for item in storage.datastores()}
    assert shown["blob"].credential == "unreadable"
    with pytest.raises(Conflict, match="sealed with another key"):
        storage.test_datastore("blob")
    blob.register()
    assert storage.test_datastore("blob")


def test_credentials_in_the_database_are_sealed(site: Site, blob: Container) -> None:
    with sqlite3.connect(site.folder / ".muster/server/muster.db") as connection:
        (sealed,) = connection.execute("select sealed from datastores where name = 'blob'").fetchone()
    connection.close()
    assert sealed.startswith("v1:") and ACCOUNT_KEY not in sealed


def test_anything_that_fsspec_knows_is_a_datastore(storage: Storage, site: Site) -> None:
    body = NewDatastore("ram", "fsspec", {"url": "memory://data"})
    storage.create_datastore(body)
    assert storage.test_datastore("ram")
    storage.upload(Path(__file__), "ram", "x")
    assert [entry.path for entry in storage.files("ram")] == [f"x/{Path(__file__).name}"]
    assert storage.files("ram")[0].size == Path(__file__).stat().st_size


def test_what_needs_another_package_names_it(storage: Storage) -> None:
    storage.create_datastore(NewDatastore("hdfs", "fsspec", {"url": "smb://host/share"}))
    with pytest.raises(MusterError, match="smb"):
        storage.test_datastore("hdfs")
