"""What clusters mount on their nodes: a container over FUSE for real, an NFS share as far as this kernel goes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psutil
import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site
from tests.integration.storage.conftest import Container
from tests.integration.storage.test_fileservers import require_nfs

from muster.client.fileservers.calls import FileServers, new_file_server
from muster.errors import JobError, NotFound

DATA = os.urandom(3 << 20)


def mounted_below(folder: Path) -> bool:
    return str(folder) in Path("/proc/self/mountinfo").read_text()


@pytest.fixture
def fuse() -> None:
    if shutil.which("rclone") is None or not Path("/dev/fuse").exists():
        pytest.skip("not installed: rclone, fuse3 (make system)")


def test_a_container_is_mounted_for_every_job_and_gone_with_it(fuse: None, site: Site, blob: Container) -> None:
    blob.put("set/a.bin", DATA)
    blob.put("set/sub/b.txt", b"text")
    mount = {"source": "azureml://datastores/blob/paths/set", "target": "photos"}
    made = site.client.create_cluster("reading", options={"max_nodes": 2, "mounts": [mount]})
    assert any("over FUSE" in notice and "too slow to feed GPUs" in notice for notice in made.notices)
    # It ends well: the first rank that fails would end the other before it has printed anything.
    command = (
        "cmp $MUSTER_MOUNTS/photos/a.bin a.bin && cat $MUSTER_MOUNTS/photos/sub/b.txt; ! touch $MUSTER_MOUNTS/photos/x"
    )
    (site.folder / "a.bin").write_bytes(DATA)
    two = {"resources": {"instance_count": 2}, "distribution": {"type": "pytorch"}}
    run = site.run(command=command, compute="reading", code=".", **two)
    view = site.wait(run)
    assert view["status"] == "Completed", view["verdict"]
    printed = [site.log(run, f"user_logs/std_log_process_{rank}.txt") for rank in (0, 1)]
    assert all(b"text" in text and b"Read-only" in text for text in printed), printed
    wait_until(lambda: not mounted_below(site.folder), 30.0, "the end of the mounts")


def test_a_killed_agent_leaves_no_mount_behind(fuse: None, site: Site, blob: Container) -> None:
    blob.put("set/a.bin", b"here")
    mount = {"source": "azureml://datastores/blob", "target": "photos"}
    site.client.create_cluster("reading", options={"max_nodes": 1, "mounts": [mount]})
    run = site.run(
        command="cat $MUSTER_MOUNTS/photos/set/a.bin; echo; echo ready; sleep 600", compute="reading",
        retry={"node_loss": 0},
    )  # fmt: skip
    site.wait(run, "Running")
    wait_until(lambda: b"ready" in site.printed(run), 60.0, "its lines")
    assert mounted_below(site.folder)
    nodes = site.client.cluster("reading").nodes
    os.kill(next(node.pid for node in nodes if node.pid), 9)
    assert site.wait(run)["status"] == "Failed"
    wait_until(lambda: not mounted_below(site.folder), 30.0, "the end of the mount")


def test_a_mount_whose_process_is_killed_ends_and_the_run_says_so(fuse: None, site: Site, blob: Container) -> None:
    blob.put("set/a.bin", b"here")
    mount = {"source": "azureml://datastores/blob", "target": "photos"}
    site.client.create_cluster("reading", options={"max_nodes": 1, "mounts": [mount]})
    loop = "echo ready; while cat $MUSTER_MOUNTS/photos/set/a.bin && ls $MUSTER_MOUNTS/photos; do sleep 0.2; done"
    run = site.run(command=loop, compute="reading")
    wait_until(lambda: b"ready" in site.printed(run), 60.0, "its lines")
    nodes = [psutil.Process(node.pid) for node in site.client.cluster("reading").nodes if node.pid]
    (mover,) = [child for node in nodes for child in node.children() if "muster.storage.staging" in child.cmdline()]
    mover.kill()
    assert site.wait(run)["status"] == "Completed"
    notes = [event.text for event, _ in site.client.stream(run, follow=False) if event.kind == "note"]
    assert any("'photos' is no longer there: the process that moved the data was killed" in note for note in notes), (
        notes
    )
    wait_until(lambda: not mounted_below(site.folder), 30.0, "the end of the mount")


def test_without_an_nfs_client_the_kernels_answer_says_what_to_do(site: Site, tmp_path: Path) -> None:
    require_nfs()
    if "nfs4" in Path("/proc/filesystems").read_text():
        pytest.skip("this kernel has an NFS client: the mount would work")
    servers = FileServers(site.client.calls)
    servers.create(new_file_server("pictures", "1GB", folder=str(tmp_path / "served")))
    view = servers.until_served("pictures")
    source = f"nfs://{view.address}:{view.port}/pictures"
    site.client.create_cluster("reading", options={"max_nodes": 1, "mounts": [{"source": source, "target": "pics"}]})
    run = site.run(command="true", compute="reading", retry={"node_loss": 0})
    ended = site.wait(run)
    assert ended["status"] == "Failed"
    verdict = ended["verdict"]
    assert "kernel has no NFS client (No such device)" in verdict["message"], verdict
    assert "modprobe nfsv4" in str(verdict)
    assert not mounted_below(site.folder)


def test_a_share_that_nobody_serves_is_named(site: Site) -> None:
    mount = {"source": "nfs://127.0.0.1:1/export", "target": "share"}
    site.client.create_cluster("reading", options={"max_nodes": 1, "mounts": [mount]})
    run = site.run(command="true", compute="reading", retry={"node_loss": 0})
    ended = site.wait(run)
    assert ended["status"] == "Failed"
    assert "no NFS server answers at 127.0.0.1:1" in ended["verdict"]["message"]


@pytest.mark.parametrize(
    ("mount", "error"),
    [
        ({"source": "fileserver:nowhere", "target": "a"}, "there is no file server 'nowhere'"),
        ({"source": "azureml://datastores/nowhere", "target": "a"}, "there is no datastore 'nowhere'"),
        ({"source": "/mnt/x", "target": "a"}, "nothing that can be mounted"),
        ({"source": "10.0.0.1:/x", "target": "/data"}, "is no name"),
        ({"source": "fileserver:pictures", "target": "a", "read_only": False}, "is mounted read-only"),
    ],
)
def test_what_cannot_be_mounted_is_refused_when_the_cluster_is_made(
    shared_site: Site, mount: dict[str, object], error: str
) -> None:
    with pytest.raises((JobError, NotFound), match=error):
        shared_site.client.create_cluster("bad", options={"mounts": [mount]})
