"""Images that the nodes of a gang take from each other: real podman, with a storage of its own for each node."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.containers.conftest import Site

from muster.environments.images import sharing

PODMAN = """#!/bin/sh
own={base}/$(echo "${{MUSTER_NODE_MARK:-nobody}}" | md5sum | cut -c1-12)
mkdir -p $own
cat > $own/storage.conf <<END
[storage]
driver = "overlay"
graphroot = "$own/root"
runroot = "$own/run"
[storage.options]
additionalimagestores = ["{store}"]
END
exec env CONTAINERS_STORAGE_CONF=$own/storage.conf {podman} "$@"
"""


@pytest.fixture
def storages(image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Each node has images of its own, besides those that this machine had already."""
    monkeypatch.setenv("MUSTER_CACHE_DIR", str(tmp_path / "cache"))
    base, program = tmp_path / "podman", tmp_path / "bin" / "podman"
    asked = ["podman", "info", "--format", "{{.Store.GraphRoot}}"]
    store = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    real = subprocess.run(["which", "podman"], check=True, capture_output=True, text=True).stdout.strip()
    program.parent.mkdir()
    program.write_text(PODMAN.format(base=base, store=store, podman=real))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    yield base
    for folder in base.glob("*/root/overlay"):
        subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)


@pytest.fixture
def gang(storages: Path, boxes: Site) -> Site:
    boxes.client.create_cluster("gang", options={"max_nodes": 2, "min_nodes": 2, "cpus": 1, "share_data": True})
    return boxes


def test_one_node_builds_an_image_and_the_other_loads_it(gang: Site, image: str) -> None:
    folder = gang.folder / "box"
    folder.mkdir()
    (folder / "Dockerfile").write_text(f"FROM {image}\nCOPY hello.txt /hello.txt\n")
    (folder / "hello.txt").write_text("hello from the folder")
    run = gang.run(
        command=["python3", "-c", "print(open('/hello.txt').read())"],
        compute="gang",
        environment={"build": {"path": "box"}},
        resources={"instance_count": 2},
        distribution={"type": "pytorch", "process_count_per_instance": 1},
    )
    view = gang.wait(run, timeout_s=180.0)
    assert view["status"] == "Completed", view["verdict"]
    for rank in range(2):
        assert b"hello from the folder" in gang.log(run, f"user_logs/std_log_process_{rank}.txt")
    logs = [gang.log(run, f"user_logs/environment_node_{node}.txt") for node in range(2)]
    assert sorted((b"COPY hello.txt" in log, b"which another node has brought" in log) for log in logs) == [
        (False, True),
        (True, False),
    ]


@pytest.mark.parametrize(
    ("names", "is_taken"),
    [
        (["localhost/team/torch:1"], True),
        ([], True),
        (["localhost/other:1"], False),
        (["localhost/team/torch:1", "localhost/other:1"], False),
    ],
)
def test_an_image_takes_no_other_name_than_its_own(tmp_path: Path, names: list[str], is_taken: bool) -> None:
    manifest = json.dumps([{"RepoTags": names}]).encode()
    with tarfile.open(tmp_path / "image.tar", "w") as tar:
        member = tarfile.TarInfo("manifest.json")
        member.size = len(manifest)
        tar.addfile(member, io.BytesIO(manifest))
    if is_taken:
        sharing._check_name(tmp_path / "image.tar", "team/torch:1")
        return
    with pytest.raises(ValueError, match="holds 1 images"):
        sharing._check_name(tmp_path / "image.tar", "team/torch:1")
