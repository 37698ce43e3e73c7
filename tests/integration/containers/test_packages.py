"""Packages on top of an image, images of registered environments, and room for images."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import MUSTER, wait_until
from tests.integration.containers.conftest import Site, containers
from tests.integration.environments.conftest import Shelf, shelf

from muster.errors import NotFound
from muster.sdk.environment import Environment
from muster.sdk.workspace import Workspace

__all__ = ["shelf"]

BUILD_LOG = "user_logs/environment_node_0.txt"
SHOW = "python -c 'import small; print(small.VERSION)' && small-says"
MICROMAMBA = """#!/bin/sh
echo micromamba "$@"
while [ "$1" != -p ]; do shift; done
python3 -m venv --without-pip "$2"
printf '#!/bin/sh\\necho ffmpeg of conda\\n' > "$2/bin/ffmpeg"
chmod +x "$2/bin/ffmpeg"
mkdir "$2/conda-meta"
touch "$2/conda-meta/ffmpeg-6.1-h1.json"
"""


@pytest.fixture
def store(image: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Images of this test alone, beside those of the machine, which can only be read."""
    # A short path: podman's sockets lie below it.
    folder = Path(tempfile.mkdtemp(prefix="ms-"))
    settings = f"""[storage]
driver = "overlay"
graphroot = "{folder}/images"
runroot = "{folder}/run"
[storage.options]
additionalimagestores = ["/var/lib/containers/storage"]
"""
    (folder / "storage.conf").write_text(settings)
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(folder / "storage.conf"))
    yield
    subprocess.run(["podman", "rmi", "--all", "--force"], check=False, capture_output=True)
    subprocess.run(["umount", folder / "images" / "overlay"], check=False, capture_output=True)
    shutil.rmtree(folder)


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_IMAGES_LIMIT_BYTES", "1")


def muster(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([MUSTER, *words], capture_output=True, text=True, check=False)


def images() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(muster("env", "list", "--json").stdout)["images"]
    return [item for item in found if item["engine"] == "podman"]


def log_of_build(site: Site, run: str) -> str:
    try:
        return site.log(run, BUILD_LOG).decode()
    except NotFound:
        return ""


def test_packages_are_put_on_an_image_once_and_the_image_is_kept_while_it_is_used(
    store: None, shelf: Shelf, boxes: Site, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.wheel("small", "1.0", script="small-says")
    conda = {"dependencies": ["python=3.11", {"pip": [*shelf.options, "small"]}], "variables": {"COLOUR": "blue"}}
    environment = {"image": image, "conda_file": conda}
    gang = {"distribution": {"type": "pytorch"}, "resources": {"instance_count": 2}}
    first = boxes.wait(boxes.run(command=f"{SHOW} && echo $COLOUR", environment=environment, **gang))
    assert first["status"] == "Completed", first["verdict"]
    for rank in (0, 1):
        assert boxes.log(first["id"], f"user_logs/std_log_process_{rank}.txt") == b"1.0\nsmall 1.0\nblue\n"
    record = boxes.client.environment_of_run(first["id"])
    assert [line.split()[0] for line in record.lock] == ["small==1.0"] and "--hash=sha256:" in record.lock[0]
    exported = muster("env", "export", first["id"]).stdout
    assert f"# on top of the image {image}" in exported and record.lock[0] in exported
    (kept,) = images()
    assert kept["name"].startswith("localhost/muster-packages:py3.11-") and not kept["in_use"]

    pip = {"image": image, "pip": [*shelf.options, "small"]}
    waiting = boxes.run(command=f"{SHOW} && sleep 1000", environment=pip)
    wait_until(lambda: b"small 1.0" in _printed(boxes, waiting), 30.0, "its first lines")
    assert log_of_build(boxes, waiting) == "", "the same packages are there already"
    assert images()[0]["in_use"]
    refused = muster("env", "rm", kept["key"])
    assert refused.returncode == 2 and "is in use" in refused.stderr
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("MUSTER_ENVIRONMENTS_DIR", str(tmp_path / "elsewhere"))
        assert images() == [] and muster("env", "rm", "--all").returncode == 0
    assert images()[0]["key"] == kept["key"], "whose locks lie elsewhere knows nothing of its use"
    boxes.client.cancel(waiting, force=True)
    boxes.wait(waiting)
    wait_until(lambda: muster("env", "rm", kept["key"]).returncode == 0, 30.0, "that nobody uses it any more")
    assert images() == []


def test_what_cannot_be_put_on_an_image_is_a_verdict_that_says_so(
    store: None, shelf: Shelf, boxes: Site, image: str
) -> None:
    def failed(conda: dict[str, Any]) -> dict[str, Any]:
        verdict: dict[str, Any] = boxes.wait(
            boxes.run(command="true", environment={"image": image, "conda_file": conda})
        )["verdict"]
        assert verdict["code"] == "environment" and verdict["next"]
        return verdict

    missing = failed({"dependencies": [{"pip": [*shelf.options, "nosuch"]}]})
    assert f"the packages could not be put on the image {image}: there is no package nosuch" in missing["message"]
    assert any("nosuch" in line for line in missing["lines"])
    conda = failed({"dependencies": ["ffmpeg=6", {"pip": ["small"]}]})
    assert (
        f"conda packages ffmpeg=6 need micromamba, mamba or conda, and the image {image} has none" in conda["message"]
    )
    python = failed({"dependencies": ["python=3.9", {"pip": ["small"]}]})
    assert "and its packages ask for Python 3.9" in python["message"]
    assert images() == []


def test_a_registered_environment_brings_its_folder_and_what_conda_puts_on_its_image(
    store: None, shelf: Shelf, boxes: Site, image: str
) -> None:
    """With a stand-in for micromamba: the real one needs its channels."""
    folder = boxes.folder / "box"
    folder.mkdir()
    (folder / "Dockerfile").write_text(f"FROM {image}\nCOPY micromamba /usr/local/bin/\nCOPY hello.txt /\n")
    (folder / "hello.txt").write_text("hello from the folder")
    (folder / "micromamba").write_text(MICROMAMBA)
    (folder / "micromamba").chmod(0o755)
    (boxes.folder / "conda.yml").write_text("channels: [mine]\ndependencies: [python=3.11, ffmpeg=6]\n")
    made = Environment.from_dockerfile("boxed", str(folder / "Dockerfile"), conda_specification="conda.yml")
    workspace = Workspace.from_config()
    assert made.register(workspace).version == "1"
    assert made.register(workspace).version == "1"
    shutil.rmtree(folder)
    workspace.client.calls.send("POST", "/gc", message={"dry_run": False, "older_than_s": 0, "keep_last": 0})
    run = boxes.wait(boxes.run(command="cat /hello.txt && ffmpeg", environment="azureml:boxed@latest"))
    assert run["status"] == "Completed", run["verdict"]
    assert boxes.log(run["id"]) == b"hello from the folderffmpeg of conda\n"
    assert "-c mine python=3.11 pip ffmpeg=6" in log_of_build(boxes, run["id"])
    assert list(boxes.client.environment_of_run(run["id"]).lock or ()) == ["conda:ffmpeg=6.1"]
    assert "image built from Dockerfile\n  + ffmpeg=6" in muster("env", "show", "boxed").stdout
    again = Environment.get(workspace, "boxed").register(workspace)
    assert again.version == "1"
    workspace.client.close()


def test_the_image_that_was_used_longest_ago_makes_room_but_none_in_use(
    store: None, shelf: Shelf, no_room: None, boxes: Site, image: str
) -> None:
    for name in ("first", "second", "third"):
        shelf.wheel(name, "1.0")

    def packages(name: str) -> dict[str, Any]:
        return {"image": image, "pip": [*shelf.options, name]}

    waiting = boxes.run(command="echo ready && sleep 1000", environment=packages("first"))
    wait_until(lambda: b"ready" in _printed(boxes, waiting), 30.0, "its first line")
    (first,) = images()
    second = boxes.wait(boxes.run(command="true", environment=packages("second")))
    assert second["status"] == "Completed" and len(images()) == 2
    third = boxes.wait(boxes.run(command="true", environment=packages("third")))
    left = {item["key"] for item in images()}
    assert left == {first["key"], third["environment"]["key"]}
    boxes.client.cancel(waiting, force=True)
    boxes.wait(waiting)


def test_an_installation_ends_with_its_agent_and_is_begun_again(
    store: None, shelf: Shelf, boxes: Site, image: str
) -> None:
    gate = shelf.gated("slow")
    run = boxes.run(command="python -c 'import slow'", environment={"image": image, "pip": [*shelf.options, "slow"]})
    wait_until(lambda: "Processing" in log_of_build(boxes, run), 30.0, "the begin of the installation")
    (name,) = containers(boxes)
    boxes.agent().kill()
    wait_until(lambda: not _runs(name), 30.0, "the end of the installation")
    wait_until(lambda: _runs(name), 30.0, "the installation by the next agent")
    gate.open()
    view = boxes.wait(run)
    assert view["status"] == "Completed", view["verdict"]


def _runs(name: str) -> bool:
    asked = ["podman", "ps", "--filter", f"name={name}", "--format", "{{.Names}}"]
    return bool(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())


def _printed(site: Site, run: str) -> bytes:
    try:
        return site.log(run)
    except NotFound:
        return b""
