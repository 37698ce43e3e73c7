"""Images from folders and shards: the same batches whatever the workers, also after a resume; a training on them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.integration.training.conftest import EXAMPLE, train


def jpeg(number: int) -> bytes:
    """A different one for each number."""
    target = io.BytesIO()
    image = Image.linear_gradient("L").resize((48, 36)).rotate(number * 11)
    Image.merge("RGB", (image, image.rotate(90), image.point(lambda shade: (shade + number) % 256))).save(
        target, "JPEG"
    )
    return target.getvalue()


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`folders` and `shards`, each with 48 images to train on and 10 to validate on, in two classes."""
    root = tmp_path_factory.mktemp("data")
    for part, count in (("train", 48), ("val", 10)):
        for number in range(count):
            place = root / "folders" / part / f"class_{number % 2}"
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{number:03d}.jpg").write_bytes(jpeg(number))
        (root / "shards" / part).mkdir(parents=True)
        for shard in range(4):
            with tarfile.open(root / "shards" / part / f"{shard}.tar", "w") as tar:
                for number in range(shard, count, 4):
                    for suffix, content in (("jpg", jpeg(number)), ("cls", str(number % 2).encode())):
                        about = tarfile.TarInfo(f"{number:03d}.{suffix}")
                        about.size = len(content)
                        tar.addfile(about, io.BytesIO(content))
    return root


LOOK = """
import hashlib, json, sys
sys.path.append(sys.argv[1])
from data import Loader, train_sampler
from sources import open_source
from options import arguments
from muster.training import join

def main():
    world = join({})
    found = []
    for kind in ("folders", "shards"):
        source = open_source(__import__("pathlib").Path(sys.argv[2]) / kind / "train")
        for workers, skipped in (("0", 0), ("2", 0), ("0", 3)):
            args = arguments(world, ["--batch-size", "8", "--image-size", "32", "--workers", workers, "--data", "x"])
            sampler = train_sampler(source, args, world)
            if skipped:
                sampler.restore(sampler.state(skipped))
            loader, seen = Loader(source, args, world, training=True), []
            for epoch in range(2):
                if epoch:
                    sampler.set_epoch(epoch)
                for images, labels in loader.over(sampler):
                    seen.append(hashlib.sha256(images.numpy().tobytes() + labels.numpy().tobytes()).hexdigest())
            found.append(seen)
    print(json.dumps(found))

if __name__ == "__main__":
    main()
"""


def test_batches_depend_neither_on_workers_nor_on_a_resume(data: Path, place: Path) -> None:
    script = place / "look.py"
    script.write_text(LOOK)
    done = subprocess.run(
        [sys.executable, str(script), str(EXAMPLE), str(data)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    for alone, with_workers, resumed in (found[:3], found[3:]):
        assert len(alone) == 12 and len(set(alone)) == 12
        assert with_workers == alone
        assert resumed == alone[3:]


def test_two_ranks_train_on_shards_and_validate_every_image(data: Path, place: Path) -> None:
    said = train(place, "--data", str(data / "shards"), "--batch-size", "4", "--epochs", "1", "--workers", "1", ranks=2)
    assert "48 images" in said.stdout and "step 6/6" in said.stdout
    figures = json.loads((place / "outputs" / "throughput.json").read_text())
    # Ten images: their top-1 is a number of tenths, which it would not be had a padded one been counted.
    assert figures["top1"] * 10 == pytest.approx(round(figures["top1"] * 10))
