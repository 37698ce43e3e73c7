"""ImageNet preparation on small archives of the original layout: right, resumable, and clear about damage."""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("PIL", reason="reading images needs muster[images]")

from PIL import Image
from tests.conftest import wait_until
from tests.sites.imagenet import Archives, make_archives

from muster.imagenet.pack import sole_writer

MUSTER = [sys.executable, "-m", "muster.cli", "data", "imagenet"]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    return make_archives(tmp_path_factory.mktemp("archives"), classes=5, per_class=12, val=15)


def prepare(archives: Archives, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*MUSTER, "--train", archives.train, "--val", archives.val, "--val-labels", archives.val_labels]
    return subprocess.run(
        [*map(str, command), "--out", str(out), "--per-shard", "10", *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def shards(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*.tar"))}


def contents(folder: Path) -> list[tuple[bytes, int]]:
    found = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            files = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
        names = sorted({name.rpartition(".")[0] for name in files})
        found += [(files[f"{name}.jpg"], int(files[f"{name}.cls"])) for name in names]
    return found


def originals(archives: Archives) -> list[tuple[bytes, int]]:
    found = []
    with tarfile.open(archives.train) as outer:
        for member in outer:
            label = archives.classes.index(member.name.removesuffix(".tar"))
            with tarfile.open(fileobj=outer.extractfile(member)) as tar:
                found += [(tar.extractfile(image).read(), label) for image in tar]  # type: ignore[union-attr]
    return found


def test_every_image_is_there_once_with_its_label_and_mixed(archives: Archives, tmp_path: Path) -> None:
    done = prepare(archives, tmp_path / "s")
    assert done.returncode == 0, done.stderr
    made = contents(tmp_path / "s" / "train")
    plain = [(data, label) for data, label in originals(archives) if Image.open(io.BytesIO(data)).mode == "RGB"]
    plain = [(data, label) for data, label in plain if Image.open(io.BytesIO(data)).format == "JPEG"]
    assert len(made) == 60
    assert set(plain) <= set(made)
    assert all(Image.open(io.BytesIO(data)).format == "JPEG" for data, _ in made)
    assert all(Image.open(io.BytesIO(data)).mode == "RGB" for data, _ in made)
    labels = [label for _, label in made]
    assert sorted(labels) != labels
    assert sorted(labels) == sorted(label for _, label in originals(archives))
    assert "train: 60 images in 6 shards" in done.stdout
    assert "2 images of train made plain RGB JPEG" in done.stderr


def test_validation_images_get_the_labels_of_the_list(archives: Archives, tmp_path: Path) -> None:
    assert prepare(archives, tmp_path / "s").returncode == 0
    listed = dict(line.split() for line in archives.val_labels.read_text().splitlines())
    with tarfile.open(archives.val) as tar:
        wanted = {tar.extractfile(member).read(): listed[member.name] for member in tar}  # type: ignore[union-attr]
    made = {data: archives.classes[label] for data, label in contents(tmp_path / "s" / "val")}
    assert made == wanted


def test_the_index_beside_a_shard_points_at_its_images(archives: Archives, tmp_path: Path) -> None:
    assert prepare(archives, tmp_path / "s").returncode == 0
    shard = tmp_path / "s" / "train" / "train-00000.tar"
    index = json.loads(shard.with_name(f"{shard.name}.index").read_text())
    raw = shard.read_bytes()
    assert [(raw[offset : offset + size], label) for offset, size, label in index] == contents(shard.parent)[:10]


def test_the_manifest_has_the_hash_of_every_shard(archives: Archives, tmp_path: Path) -> None:
    assert prepare(archives, tmp_path / "s").returncode == 0
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    told = {item["name"]: item["sha256"] for split in manifest["splits"].values() for item in split["shards"]}
    assert told == shards(tmp_path / "s")


def test_train_and_val_made_by_a_command_each_are_both_in_the_manifest(archives: Archives, tmp_path: Path) -> None:
    out = ["--out", tmp_path / "s", "--per-shard", "10"]
    val = ["--val", archives.val, "--val-labels", archives.val_labels, "--classes-file", tmp_path / "s" / "classes.txt"]
    for part in (["--train", archives.train], val):
        done = subprocess.run([*map(str, [*MUSTER, *part, *out])], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert prepare(archives, tmp_path / "t").returncode == 0
    one, both = (json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("t", "s"))
    assert one == both


def test_killed_at_random_moments_it_goes_on_and_gives_the_same_bytes(tmp_path: Path) -> None:
    archives = make_archives(tmp_path / "a", classes=10, per_class=60, val=5)
    assert prepare(archives, tmp_path / "whole").returncode == 0
    out, source = tmp_path / "broken", random.Random(4)
    command = [*MUSTER, "--train", str(archives.train), "--out", str(out), "--per-shard", "10", "--workers", "2"]
    for count in sorted(source.randrange(1, 55) for _ in range(3)):
        started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def far_enough(wanted: int = count, process: subprocess.Popen[bytes] = started) -> bool:
            return len(list(out.glob("train/*.tar"))) >= wanted or process.poll() is not None

        wait_until(far_enough, 60, "some shards")
        started.send_signal(signal.SIGKILL)
        started.wait()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert shards(out / "train") == shards(tmp_path / "whole" / "train")
    assert not list(out.rglob("*.part"))


def test_a_second_start_has_nothing_to_do(archives: Archives, tmp_path: Path) -> None:
    assert prepare(archives, tmp_path / "s").returncode == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "s").rglob("*.tar")}
    assert prepare(archives, tmp_path / "s").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "s").rglob("*.tar")} == before


def test_a_checksum_that_holds_and_one_that_does_not(archives: Archives, tmp_path: Path) -> None:
    right = hashlib.md5(archives.train.read_bytes(), usedforsecurity=False).hexdigest()
    assert prepare(archives, tmp_path / "s", "--check", f"train=md5:{right}").returncode == 0
    done = prepare(archives, tmp_path / "t", "--check", f"val=sha256:{'00ff' * 16}")
    assert done.returncode != 0
    assert "the sha256 of" in done.stderr
    assert "00ff" * 16 in done.stderr
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("text", ["train", "test=md5:00", "train=crc:00", "train=md5:xyz"])
def test_a_check_that_cannot_be_read_is_refused(archives: Archives, tmp_path: Path, text: str) -> None:
    done = prepare(archives, tmp_path / "s", "--check", text)
    assert done.returncode == 2
    assert "WHICH=KIND:VALUE" in done.stderr


def damaged(archives: Archives, tmp_path: Path, **parts: Any) -> Archives:
    return Archives(**{**vars(archives), **parts})


def test_an_archive_that_was_cut_off_is_named_before_anything_is_written(archives: Archives, tmp_path: Path) -> None:
    cut = tmp_path / "cut.tar"
    raw = archives.train.read_bytes()
    cut.write_bytes(raw[: len(raw) * 2 // 3])
    done = prepare(damaged(archives, tmp_path, train=cut), tmp_path / "s")
    assert done.returncode != 0
    assert "cut.tar" in done.stderr
    assert not (tmp_path / "s").exists()


def test_an_image_that_is_none_is_named(archives: Archives, tmp_path: Path) -> None:
    spoiled = tmp_path / "spoiled.tar"
    raw = bytearray(archives.val.read_bytes())
    with tarfile.open(archives.val) as tar:
        third = tar.getmembers()[2]
    raw[third.offset_data : third.offset_data + third.size] = b"x" * third.size
    spoiled.write_bytes(raw)
    done = prepare(damaged(archives, tmp_path, val=spoiled), tmp_path / "s")
    assert done.returncode != 0
    assert f"{third.name} in {spoiled} is no image" in done.stderr


def test_a_missing_class_shows_in_the_labels_and_in_the_count(archives: Archives, tmp_path: Path) -> None:
    fewer = tmp_path / "fewer.tar"
    with tarfile.open(archives.train) as old, tarfile.open(fewer, "w") as new:
        for member in old:
            if not member.name.startswith(archives.classes[2]):
                new.addfile(member, old.extractfile(member))
    poor = damaged(archives, tmp_path, train=fewer)
    assert f"no class '{archives.classes[2]}'" in prepare(poor, tmp_path / "s").stderr
    assert "there are 4 classes, not 5" in prepare(poor, tmp_path / "s", "--classes", "5").stderr


def test_other_settings_are_not_mixed_into_shards_that_are_there(archives: Archives, tmp_path: Path) -> None:
    assert prepare(archives, tmp_path / "s").returncode == 0
    done = prepare(archives, tmp_path / "s", "--seed", "1")
    assert done.returncode != 0
    assert "made in another way" in done.stderr


def test_other_labels_are_not_mixed_into_shards_that_are_there(archives: Archives, tmp_path: Path) -> None:
    assert prepare(archives, tmp_path / "s").returncode == 0
    lines = [line.split() for line in archives.val_labels.read_text().splitlines()]
    lines[0][1] = next(name for name in archives.classes if name != lines[0][1])
    mended = tmp_path / "mended.txt"
    mended.write_text("".join(f"{name} {label}\n" for name, label in lines))
    done = prepare(damaged(archives, tmp_path, val_labels=mended), tmp_path / "s")
    assert done.returncode != 0
    assert f"{tmp_path / 's' / 'val'} holds shards that were made in another way" in done.stderr


def test_two_at_once_in_one_folder_are_refused(archives: Archives, tmp_path: Path) -> None:
    with sole_writer(tmp_path / "s"):
        done = prepare(archives, tmp_path / "s")
    assert done.returncode != 0
    assert f"another `muster data imagenet` writes to {tmp_path / 's'}" in done.stderr
    assert prepare(archives, tmp_path / "s").returncode == 0


def test_a_disk_that_fills_up_is_said_and_the_rest_is_made_later(archives: Archives, tmp_path: Path) -> None:
    (tmp_path / "s" / "train").mkdir(parents=True)
    (tmp_path / "s" / "train" / ".train-00003.tar.part").symlink_to("/dev/full")
    command = [*MUSTER, "--train", str(archives.train), "--out", str(tmp_path / "s"), "--per-shard", "10"]
    done = subprocess.run([*command, "--workers", "1"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    assert re.search(r"has no room left.*written, and stay: [345] of 6.*goes on from here", done.stderr, re.DOTALL)
    assert not list((tmp_path / "s").rglob("*.part"))
    assert subprocess.run(command, capture_output=True, timeout=120, check=False).returncode == 0


def test_images_are_made_smaller_where_asked(archives: Archives, tmp_path: Path) -> None:
    assert prepare(archives, tmp_path / "s", "--resize", "32").returncode == 0
    assert {min(Image.open(io.BytesIO(data)).size) for data, _ in contents(tmp_path / "s" / "train")} == {32}


def test_the_development_kit_gives_the_same_labels_as_the_list(archives: Archives, tmp_path: Path) -> None:
    scipy_io = pytest.importorskip("scipy.io", reason="the development kit is read with scipy")
    numpy = pytest.importorskip("numpy")
    order = list(reversed(archives.classes))
    table = numpy.array(
        [(number, name) for number, name in enumerate(order, 1)], dtype=[("ILSVRC2012_ID", "i4"), ("WNID", "O")]
    )
    meta = io.BytesIO()
    scipy_io.savemat(meta, {"synsets": table})
    listed = [line.split()[1] for line in archives.val_labels.read_text().splitlines()]
    truth = "".join(f"{order.index(name) + 1}\n" for name in listed).encode()
    kit = tmp_path / "kit.tar.gz"
    with tarfile.open(kit, "w:gz") as tar:
        for name, data in (("meta.mat", meta.getvalue()), ("ILSVRC2012_validation_ground_truth.txt", truth)):
            member = tarfile.TarInfo(f"kit/data/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    command = [*MUSTER, "--train", archives.train, "--val", archives.val, "--devkit", kit, "--out", tmp_path / "k"]
    assert subprocess.run([*map(str, command), "--per-shard", "10"], check=False).returncode == 0
    assert prepare(archives, tmp_path / "l").returncode == 0
    assert shards(tmp_path / "k" / "val") == shards(tmp_path / "l" / "val")
