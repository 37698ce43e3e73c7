"""File servers with a real nfs-ganesha and with Muster's own, read through libnfs: filled, killed, resized, deleted."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site
from tests.integration.storage.conftest import Container

from muster.client.connect import connect
from muster.client.fileservers.calls import FileServers, new_file_server
from muster.client.storage import Storage
from muster.client.workspace import find_workspace
from muster.errors import Conflict, JobError, NotFound
from muster.wire.data.fileservers import FileServerView, FillView

BYTES = os.urandom(700_000)


def require_nfs() -> None:
    found = shutil.which("ganesha.nfsd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/bin")
    if os.getuid() != 0:
        pytest.skip("nfs-ganesha serves files only as root")
    if found is None or shutil.which("nfs-cat") is None:
        pytest.skip("not installed: nfs-ganesha, libnfs-utils (make system)")


@pytest.fixture
def servers(site: Site) -> FileServers:
    require_nfs()
    return FileServers(site.client.calls)


@pytest.fixture
def pictures(servers: FileServers, tmp_path: Path) -> Iterator[FileServerView]:
    """A file server that serves, with nothing in it."""
    servers.create(new_file_server("pictures", "1GB", folder=str(tmp_path / "served")))
    view = servers.until_served("pictures")
    assert view.state == "serving", view.why
    yield view


def read(view: FileServerView, path: str) -> bytes:
    url = f"nfs://{view.address}{view.export}/{path}?version=4&nfsport={view.port}"
    return subprocess.run(["nfs-cat", url], check=True, capture_output=True, timeout=30).stdout


def listed(view: FileServerView, path: str = "") -> set[str]:
    url = f"nfs://{view.address}{view.export}/{path}?version=4&nfsport={view.port}"
    done = subprocess.run(["nfs-ls", url], check=True, capture_output=True, text=True, timeout=30)
    return {line.split()[-1] for line in done.stdout.splitlines()}


def nfs_process(view: FileServerView) -> psutil.Process:
    """The NFS server of this file server alone."""
    for process in psutil.process_iter(["cmdline"]):
        if {f"{view.folder}/state/ganesha.conf", f"{view.folder}/state/nfs.json"} & {*(process.info["cmdline"] or ())}:
            return process
    raise AssertionError("no NFS server runs")


def filled(servers: FileServers, name: str, source: str, to: str = "") -> FillView:
    servers.fill(name, source, to)
    found = servers.until_filled(name, source, to)
    assert found.progress.state == "filled", found.progress
    return found


def test_data_of_a_container_are_served_and_survive_kills(
    servers: FileServers, pictures: FileServerView, blob: Container, site: Site
) -> None:
    blob.put("set/a.bin", BYTES)
    blob.put("set/sub/with space.txt", b"text")
    found = filled(servers, "pictures", "azureml://datastores/blob/paths/set", "train")
    assert (found.progress.total_files, found.progress.total_bytes) == (2, len(BYTES) + 4)
    assert read(pictures, "train/a.bin") == BYTES
    assert listed(pictures, "train") == {"a.bin", "sub"}

    # A job of this machine names them by the datastore of the same name.
    run = site.run(
        command="cat '${{inputs.data}}/sub/with space.txt'; touch ${{inputs.data}}/x",
        inputs={"data": {"type": "uri_folder", "path": "azureml://datastores/pictures/paths/train"}},
    )
    site.wait(run)
    assert b"text" in site.printed(run), site.view(run)["verdict"]

    # The NFS server is killed: another one answers at the same address.
    nfs_process(pictures).kill()
    wait_until(lambda: servers.show("pictures").restarts == 1, 30.0, "the restart")
    again = servers.show("pictures")
    assert (again.state, again.port) == ("serving", pictures.port)
    assert read(again, "train/a.bin") == BYTES

    # The agent is killed: nothing is left behind, the next attempt serves the same data at the same address.
    process = nfs_process(again)
    site.agent(again.node or "").kill()
    process.wait(30)

    wait_until(lambda: len(site.view(again.run or "")["attempts"]) == 2, 60.0, "the next attempt")
    wait_until(lambda: servers.show("pictures").state == "serving", 60.0, "its service")
    wait_until(lambda: servers.show("pictures").is_filled, 30.0, "the data")
    back = servers.show("pictures")
    assert (back.port, back.run) == (pictures.port, pictures.run)
    assert read(back, "train/a.bin") == BYTES


def test_musters_own_server_serves_where_ganesha_cannot(site: Site, blob: Container, tmp_path: Path) -> None:
    if shutil.which("nfs-cat") is None:
        pytest.skip("not installed: libnfs-utils (make system)")
    servers = FileServers(site.client.calls)
    servers.create(new_file_server("own", "1GB", folder=str(tmp_path / "served#")))
    view = servers.until_served("own")
    assert view.state == "serving", view.why
    assert b"by Muster's own server" in site.log(view.run or "")
    blob.put("set/a.bin", BYTES)
    filled(servers, "own", "azureml://datastores/blob/paths/set", "train")
    assert read(view, "train/a.bin") == BYTES
    assert listed(view, "train") == {"a.bin"}
    nfs_process(view).kill()
    wait_until(lambda: servers.show("own").restarts == 1, 30.0, "the restart")
    again = servers.show("own")
    assert (again.state, again.port) == ("serving", view.port)
    assert read(again, "train/a.bin") == BYTES
    process = nfs_process(again)
    servers.delete("own")
    servers.until_gone("own")
    process.wait(30)
    assert not Path(view.folder or "").exists()


def test_it_serves_without_the_workspaces_server(pictures: FileServerView, site: Site, blob: Container) -> None:
    blob.put("set/a.bin", BYTES)
    servers = FileServers(site.client.calls)
    filled(servers, "pictures", "azureml://datastores/blob/paths/set")
    site.server().kill()
    assert read(pictures, "a.bin") == BYTES
    # The next server finds it as it is.
    client = connect(find_workspace(site.folder))
    servers = FileServers(client.calls)
    wait_until(lambda: servers.show("pictures").state == "serving", 30.0, "the report")
    assert servers.show("pictures").port == pictures.port
    servers.delete("pictures")
    servers.until_gone("pictures")
    assert not Path(pictures.folder or "").exists()
    client.close()


def test_a_second_fill_fetches_what_changed_and_the_size_is_a_limit(
    servers: FileServers, pictures: FileServerView, blob: Container
) -> None:
    servers.fill("pictures", "azureml://datastores/blob/paths/set")
    missing = servers.until_filled("pictures", "azureml://datastores/blob/paths/set", "").progress
    assert missing.state == "failed"
    assert "there is no file below it" in missing.text and "tried again" in missing.text
    blob.put("set/a.bin", BYTES)
    filled(servers, "pictures", "azureml://datastores/blob/paths/set")
    before = (Path(pictures.folder or "") / "data" / "a.bin").stat().st_ino
    servers.resize("pictures", 1_000_000)
    blob.put("set/b.bin", BYTES)
    servers.fill("pictures", "azureml://datastores/blob/paths/set")
    found = servers.until_filled("pictures", "azureml://datastores/blob/paths/set", "")
    assert found.progress.state == "failed"
    assert "may hold 1.0 MB" in found.progress.text and "resize" in found.progress.next
    with pytest.raises(JobError, match="out of range"):
        servers.resize("pictures", 1)
    servers.resize("pictures", 10_000_000)
    filled(servers, "pictures", "azureml://datastores/blob/paths/set")
    assert listed(pictures) == {"a.bin", "b.bin"}
    assert (Path(pictures.folder or "") / "data" / "a.bin").stat().st_ino == before
    with pytest.raises(Conflict, match="two sources would mix"):
        servers.fill("pictures", "azureml://datastores/blob/paths/other")


def test_what_a_cluster_mounts_or_a_job_uses_is_not_deleted(
    servers: FileServers, pictures: FileServerView, site: Site, blob: Container, tmp_path: Path
) -> None:
    blob.put("set/a.bin", b"mounted")
    filled(servers, "pictures", "azureml://datastores/blob/paths/set")
    mount = {"source": "fileserver:pictures", "target": "pics"}
    made = site.client.create_cluster("walk", options={"max_nodes": 1, "mounts": [mount]})
    assert any("served by one machine" in notice for notice in made.notices)
    run = site.run(command="cat $MUSTER_MOUNTS/pics/a.bin", compute="walk")
    assert site.wait(run)["status"] == "Completed"
    assert b"mounted" in site.log(run)
    with pytest.raises(Conflict, match="walk mounts the file server pictures"):
        servers.delete("pictures")
    site.client.delete_cluster("walk", "now")
    wait_until(lambda: "walk" not in {item.name for item in site.client.clusters()}, 30.0, "the end of the cluster")
    # Its folder is somebody's: another file server does not take it.
    servers.create(new_file_server("other", "1GB", folder=pictures.folder))
    other = servers.until_served("other")
    assert other.state == "failed" and "belongs to another file server (pictures)" in (other.why or "")
    for name in ("other", "pictures"):
        servers.delete(name)
        servers.until_gone(name)
    with pytest.raises(NotFound):
        Storage(site.client.calls).datastore("pictures")
    assert not Path(pictures.folder or "").exists()
