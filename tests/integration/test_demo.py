"""The demo does what the README says: two ranks train together, the loss falls, the model comes back."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.conftest import wait_until

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "resnet50"
BIN = Path(sys.executable).parent
SHORT = ("--steps", "4", "--width", "8", "--image-size", "32", "--batch-size", "4", "--warmup-steps", "1")


@pytest.mark.timeout(900)
def test_make_demo_trains_on_two_ranks_and_keeps_the_model(workspace: Path) -> None:
    clone(workspace)
    done = subprocess.run(["make", "demo"], cwd=workspace, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"images/s in total", done.stdout)

    run = muster_json(workspace, "show", "@latest", "--json")
    assert run["status"] == "Completed"
    assert [rank["exit_code"] for rank in run["attempts"][-1]["ranks"]] == [0, 0]
    assert len({rank["node"] for rank in run["attempts"][-1]["ranks"]}) == 2
    assert run["progress"]["done"] == run["progress"]["total"]
    assert run["metrics"]["images_per_sec"] > 0

    subprocess.run([BIN / "muster", "download", "@latest", "outputs", "--to", "got"], cwd=workspace, check=True)
    (figures_file,) = (workspace / "got").rglob("throughput.json")
    (model_file,) = (workspace / "got").rglob("model.pt")
    figures = json.loads(figures_file.read_text())
    assert figures["world_size"] == 2
    assert figures["images_per_sec"] == pytest.approx(sum(figures["images_per_sec_of_ranks"]), rel=0.05)
    assert figures["images_per_sec_per_device"] == figures["images_per_sec"] / 2
    assert figures["final_loss"] < 0.6 * figures["first_loss"]
    # ResNet-50 with 10 classes has 23.5 million parameters of four bytes.
    assert model_file.stat().st_size > 90_000_000
    put_to_work(workspace)


def put_to_work(workspace: Path) -> None:
    """The model is registered, goes through a folder of pictures, and answers a request that holds one."""
    muster, script = [str(BIN / "muster")], str(EXAMPLE / "score.py")
    (workspace / "pictures").mkdir()
    for number, colour in enumerate(("red", "green", "blue")):
        Image.new("RGB", (120, 90), colour).save(workspace / "pictures" / f"{number}.jpg")
    (workspace / "pictures" / "broken.jpg").write_bytes(b"no picture")
    register = ["model", "register", "resnet50", "--path", "runs:/@latest/outputs/model.pt"]
    subprocess.run([*muster, *register], cwd=workspace, check=True)
    score = ["score", "resnet50:1", "--script", script, "--input", "./pictures", "--output", "./predictions"]
    subprocess.run([*muster, *score], cwd=workspace, check=True)
    (predictions,) = (workspace / "predictions").iterdir()
    rows = [json.loads(line) for line in predictions.read_text().splitlines()]
    assert [row["file"] for row in rows] == ["0.jpg", "1.jpg", "2.jpg", "broken.jpg"]
    assert rows[-1]["error"] == "this is no picture"

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serve = ["serve", script, "--model", "resnet50:1", "--port", str(port), "--detach"]
    subprocess.run([*muster, *serve], cwd=workspace, check=True)
    picture = (workspace / "pictures" / "1.jpg").read_bytes()
    answer = wait_until(lambda: asked(port, picture), 120, "an answer")
    assert {"file": "1.jpg", **answer} == rows[1]


def asked(port: int, picture: bytes) -> dict[str, Any] | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/score", data=picture, timeout=60) as response:
            return dict(json.loads(response.read()))
    except urllib.error.URLError:
        return None


@pytest.mark.parametrize(
    "launcher", [(), ("torchrun", "--standalone", "--nproc-per-node", "2")], ids=["alone", "torchrun"]
)
def test_the_example_needs_no_muster_to_run_it(launcher: tuple[str, ...], tmp_path: Path) -> None:
    head = [str(BIN / launcher[0]), *launcher[1:]] if launcher else [sys.executable]
    done = subprocess.run(
        [*head, str(EXAMPLE / "train.py"), *SHORT, "--out", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "throughput.json").read_text())["world_size"] == (2 if launcher else 1)


def clone(folder: Path) -> None:
    """What `make demo` needs of the repository, with this Python's environment in place of a fresh one."""
    shutil.copytree(EXAMPLE, folder / "examples" / "resnet50", ignore=shutil.ignore_patterns("__pycache__", "outputs"))
    job = folder / "examples" / "resnet50" / "job.yml"
    # A third of the steps, and smaller images, are enough to see the loss fall.
    text = re.sub(r"steps: \d+", "steps: 25", job.read_text())
    job.write_text(text.replace("train.py", "train.py --image-size 48"))
    shutil.copy2(ROOT / "Makefile", folder)
    shutil.copy2(ROOT / "pyproject.toml", folder)
    (folder / ".venv").mkdir()
    (folder / ".venv" / "pyvenv.cfg").touch()
    (folder / ".venv" / "bin").symlink_to(BIN)
    for stamp in (".created", ".base", ".torch"):
        (folder / ".venv" / stamp).touch()


def muster_json(folder: Path, *arguments: str) -> Any:
    done = subprocess.run([BIN / "muster", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)
