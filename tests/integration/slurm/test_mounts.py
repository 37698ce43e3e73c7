"""What clusters on Slurm mount on their nodes: agents mount, so it is as on every engine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site

from muster.client.storage import Storage
from muster.wire.data.datastores import NewDatastore


@pytest.mark.skipif(shutil.which("rclone") is None or not Path("/dev/fuse").exists(), reason="needs rclone and FUSE")
def test_a_datastore_is_mounted_on_every_node_over_fuse(
    site: Site, cluster: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.txt").write_text("a photo\n")
    Storage(site.client.calls).create_datastore(NewDatastore("photos", "local", {"path": str(tmp_path / "photos")}))
    mount = {"source": "azureml://datastores/photos", "target": "photos"}
    name = cluster("mounting", mounts=[mount])
    two = {"resources": {"instance_count": 2}, "distribution": {"type": "pytorch"}}
    run = site.run(command="cat $MUSTER_MOUNTS/photos/one.txt; touch $MUSTER_MOUNTS/photos/x", compute=name, **two)
    view = site.wait(run)
    printed = [site.log(run, rank["log"]).decode() for rank in view["attempts"][0]["ranks"]]
    assert len(printed) == 2
    assert all("a photo" in text and "Read-only" in text for text in printed), (view["verdict"], printed)
    wait_until(
        lambda: f"{site.folder}/.muster" not in Path("/proc/self/mountinfo").read_text(), 30.0, "the end of the mounts"
    )


def test_a_share_that_cannot_be_mounted_ends_the_attempt_with_the_reason(
    site: Site, cluster: Callable[..., str]
) -> None:
    name = cluster("nfs-mounting", mounts=[{"source": "nfs://127.0.0.1:1/export", "target": "share"}])
    run = site.run(command="true", compute=name, retry={"node_loss": 0})
    view = site.wait(run)
    assert view["status"] == "Failed"
    wanted = "no NFS server answers at 127.0.0.1:1" if os.getuid() == 0 else "root"
    assert wanted in str(view["verdict"])
