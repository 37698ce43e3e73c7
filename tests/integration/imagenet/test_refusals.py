"""ImageNet preparation says what is wrong with what it is given, before it writes anything."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("PIL", reason="reading images needs muster[images]")

from tests.sites.imagenet import Archives, make_archives

from muster.cli.main import app

USER_ERROR = 2
TRUTH = "ILSVRC2012_validation_ground_truth.txt"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    return make_archives(tmp_path_factory.mktemp("archives"), classes=4, per_class=5, val=8)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def muster(out: Path, *options: object) -> Any:
    return CliRunner().invoke(app, ["data", "imagenet", "--out", str(out), "--per-shard", "10", *map(str, options)])


def train(archives: Archives, out: Path, *options: object) -> Any:
    return muster(out, "--train", archives.train, *options)


def val(archives: Archives, out: Path, *options: object) -> Any:
    return muster(out, "--val", archives.val, "--val-labels", archives.val_labels, *options)


def listed(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def refused(done: Any, *said: object) -> None:
    assert done.exit_code == USER_ERROR, done.output
    for text in said:
        assert str(text) in done.output


# Classes


def test_the_first_word_of_a_line_is_the_class_and_the_rest_describes_it(
    archives: Archives, out: Path, tmp_path: Path
) -> None:
    described = [f"{name} tench, Tinca tinca" for name in archives.classes]
    done = val(archives, out, "--classes-file", listed(tmp_path / "mapping.txt", ["", *described]))
    assert done.exit_code == 0, done.output
    assert "4 classes" in done.output
    assert (out / "classes.txt").read_text().split() == list(archives.classes)


def test_a_class_that_is_listed_twice_is_refused(archives: Archives, out: Path, tmp_path: Path) -> None:
    names = listed(tmp_path / "names.txt", [*archives.classes, archives.classes[1]])
    done = val(archives, out, "--classes-file", names)
    refused(done, f"{names}:5: the class {archives.classes[1]} is already in line 2")
    assert not out.exists()


@pytest.mark.parametrize("data", [None, b"", b"\xff\xfe\0n"])
def test_a_list_of_classes_that_is_none_is_refused(
    archives: Archives, out: Path, tmp_path: Path, data: bytes | None
) -> None:
    names = tmp_path / "names.txt"
    if data is not None:
        names.write_bytes(data)
    refused(val(archives, out, "--classes-file", names), names, "one class in each line")
    assert not out.exists()


def test_other_classes_than_those_of_the_shards_in_the_folder_are_refused(
    archives: Archives, out: Path, tmp_path: Path
) -> None:
    assert train(archives, out).exit_code == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    first, second = archives.classes[:2]
    other = listed(tmp_path / "other.txt", [second, first, *archives.classes[2:]])
    own = out / "classes.txt"
    done = val(archives, out, "--classes-file", other)
    refused(done, f"{out} holds shards of other classes: class 0 is {first} in {own} and {second} in {other}")
    refused(done, "Leave --classes-file out", "another --out")
    fewer = listed(tmp_path / "fewer.txt", list(archives.classes[:3]))
    refused(val(archives, out, "--classes-file", fewer), f"class 3 is {archives.classes[3]} in", "and none in")
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_val_alone_takes_the_classes_of_the_folder(archives: Archives, out: Path) -> None:
    assert train(archives, out).exit_code == 0
    done = val(archives, out)
    assert done.exit_code == 0, done.output
    assert (out / "classes.txt").read_text().split() == list(archives.classes)
    assert sorted(json.loads((out / "manifest.json").read_text())["splits"]) == ["train", "val"]


def test_train_is_held_against_the_classes_of_shards_that_are_there(
    archives: Archives, out: Path, tmp_path: Path
) -> None:
    other = listed(tmp_path / "other.txt", list(reversed(archives.classes)))
    assert val(archives, out, "--classes-file", other).exit_code == 0
    refused(train(archives, out), f"{out} holds shards of other classes", archives.train, "another --out")
    assert not (out / "train").exists()


def test_val_alone_needs_the_classes(archives: Archives, out: Path) -> None:
    refused(val(archives, out), "the order of the classes is not known", "--classes-file")
    assert not out.exists()


def test_a_list_of_classes_beside_the_training_archive_is_refused(
    archives: Archives, out: Path, tmp_path: Path
) -> None:
    names = listed(tmp_path / "names.txt", list(archives.classes))
    refused(train(archives, out, "--classes-file", names), f"--classes-file {names} cannot be given together", "leave")
    assert not out.exists()


# Labels


def with_labels(archives: Archives, out: Path, path: Path) -> Any:
    return muster(out, "--train", archives.train, "--val", archives.val, "--val-labels", path)


def test_a_file_with_two_classes_is_refused_and_one_listed_twice_alike_is_not(
    archives: Archives, out: Path, tmp_path: Path
) -> None:
    lines = archives.val_labels.read_text().splitlines()
    name, label = lines[0].split()
    assert with_labels(archives, out, listed(tmp_path / "alike.txt", [*lines, lines[0]])).exit_code == 0
    other = next(wrong for wrong in archives.classes if wrong != label)
    twice = listed(tmp_path / "twice.txt", [*lines, f"{name} {other}"])
    refused(with_labels(archives, tmp_path / "t", twice), f"{twice}:9: {name} is listed twice", "remove the line")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("data", [b"\x89PNG\xff\xfe", b"\0" * 600, b""])
def test_labels_that_are_no_text_are_refused(archives: Archives, out: Path, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "labels.bin"
    path.write_bytes(data)
    refused(with_labels(archives, out, path), path, "a class in each line, or a file's name and its class")
    assert not out.exists()


def test_lines_of_another_length_are_named(archives: Archives, out: Path, tmp_path: Path) -> None:
    path = listed(tmp_path / "labels.txt", ["a.JPEG 0", "", "b.JPEG 0 1 2"])
    refused(with_labels(archives, out, path), f"{path}:3: this line has 4 words, and line 1 2", "one or two words")


def test_too_few_labels_are_counted(archives: Archives, out: Path, tmp_path: Path) -> None:
    refused(with_labels(archives, out, listed(tmp_path / "l.txt", ["0"])), "has 8 images, and there are 1", "one label")
    refused(with_labels(archives, out, listed(tmp_path / "l.txt", ["x 0"])), "8 of the 8 images of", "--val-labels")


def kit(path: Path, **files: bytes) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"kit/data/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def table(names: tuple[str, ...], variable: str = "synsets") -> bytes:
    scipy_io = pytest.importorskip("scipy.io", reason="the development kit is read with scipy")
    numpy = pytest.importorskip("numpy")
    rows = numpy.array(list(enumerate(names, 1)), dtype=[("ILSVRC2012_ID", "i4"), ("WNID", "O")])
    file = io.BytesIO()
    scipy_io.savemat(file, {variable: rows}, do_compression=True)
    return file.getvalue()


def with_kit(archives: Archives, out: Path, path: Path) -> Any:
    return muster(out, "--train", archives.train, "--val", archives.val, "--devkit", path)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda whole: b"", id="empty"),
        pytest.param(lambda whole: b"no table" * 60, id="something else"),
        pytest.param(lambda whole: whole[: len(whole) // 2], id="cut off"),
        pytest.param(lambda whole: whole[:150] + b"\x55" * (len(whole) - 150), id="damaged"),
    ],
)
def test_a_kit_with_a_damaged_table_is_refused(
    archives: Archives, out: Path, tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    path = kit(tmp_path / "kit.tar.gz", **{"meta.mat": spoil(table(archives.classes)), TRUTH: b"1\n" * 8})
    refused(with_kit(archives, out, path), f"meta.mat in {path} holds no table `synsets`", "Download", "--val-labels")
    assert not out.exists()


def test_a_kit_with_another_table_is_refused(archives: Archives, out: Path, tmp_path: Path) -> None:
    path = kit(tmp_path / "kit.tar.gz", **{"meta.mat": table(archives.classes, "other"), TRUTH: b"1\n" * 8})
    refused(with_kit(archives, out, path), f"meta.mat in {path} holds no table `synsets`")


@pytest.mark.parametrize("word", [b"two", b"\xff\xfe", b"-1"])
def test_a_kit_whose_truth_is_no_number_is_refused(archives: Archives, out: Path, tmp_path: Path, word: bytes) -> None:
    path = kit(tmp_path / "kit.tar.gz", **{"meta.mat": table(archives.classes), TRUTH: b"1\n" + word + b"\n"})
    refused(with_kit(archives, out, path), f"{TRUTH} in {path} is damaged: its entry 2 is", "Download the kit again")
    assert not out.exists()


def test_a_kit_of_other_classes_is_refused(archives: Archives, out: Path, tmp_path: Path) -> None:
    path = kit(tmp_path / "kit.tar.gz", **{"meta.mat": table(archives.classes), TRUTH: b"9\n" * 8})
    refused(with_kit(archives, out, path), "speaks of class 9 (unknown)", archives.classes[0], "same ImageNet")


def test_a_kit_with_flipped_bits_is_refused(archives: Archives, out: Path, tmp_path: Path) -> None:
    numbers = "".join(f"{number}\n" for number in range(50_000)).encode()
    path = kit(tmp_path / "kit.tar.gz", **{TRUTH: numbers, "meta.mat": table(archives.classes)})
    raw = bytearray(path.read_bytes())
    for begin in range(0, len(raw), len(raw) // 10):
        spoiled = raw[:begin] + b"\xff" * 64 + raw[begin + 64 :]
        path.write_bytes(spoiled)
        refused(with_kit(archives, out, path), path)


def test_only_one_source_of_labels_may_be_given(archives: Archives, out: Path, tmp_path: Path) -> None:
    done = val(archives, out, "--train", archives.train, "--devkit", tmp_path / "kit.tar.gz")
    refused(done, "both --devkit and --val-labels are given", "Leave one of them out")


# Checks of archives


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("train=size:10240ff", "10240ff is no size"),
        ("train=md5:abc", "md5 has 32 digits, and this has 3"),
        ("val=sha1:" + "0" * 64, "sha1 has 40 digits, and this has 64"),
        ("val=sha256:" + "0" * 63, "sha256 has 64 digits, and this has 63"),
    ],
)
def test_a_value_that_no_check_can_have_is_refused_before_reading(
    archives: Archives, out: Path, check: str, said: str
) -> None:
    done = val(archives, out, "--train", archives.train, "--check", check)
    refused(done, f"--check {check}: {said}")
    assert "verifying" not in done.output


def test_sizes_are_compared_without_a_word_and_before_anything_is_hashed(archives: Archives, out: Path) -> None:
    right = f"train=size:{archives.train.stat().st_size}"
    assert "verifying" not in train(archives, out, "--check", right).output
    checks = ["--check", f"train=md5:{'0' * 32}", "--check", "val=size:1"]
    done = val(archives, out, "--train", archives.train, *checks)
    refused(done, f"{archives.val} has {archives.val.stat().st_size} bytes; --check says 1")
    assert "verifying" not in done.output


def test_a_check_of_an_archive_that_is_not_given_is_refused(archives: Archives, out: Path) -> None:
    refused(train(archives, out, "--check", "val=size:1"), "the val archive, which is not given", "Give --val too")


def test_an_archive_of_something_else_is_refused(archives: Archives, out: Path) -> None:
    refused(muster(out, "--train", archives.val), f"{archives.val} holds no archives of classes (n01440764.tar …)")


# Room


def test_the_way_out_of_a_short_disk_works(archives: Archives, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(out.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    refused(train(archives, out), f"{out} has 1e-06 GB free", "--resize 256")
    assert [path.name for path in out.iterdir()] == [".lock"]
    done = train(archives, out, "--resize", "32")
    assert done.exit_code == 0, done.output


def test_shards_that_are_there_are_not_to_be_mixed_with_smaller_ones(
    archives: Archives, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train(archives, out).exit_code == 0
    (out / "train" / "train-00001.tar").unlink()
    usage = shutil.disk_usage(out)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    refused(train(archives, out), "--resize 256 and another --out")


def test_a_plan_that_led_to_no_shard_binds_nobody(archives: Archives, out: Path) -> None:
    (out / "train").mkdir(parents=True)
    (out / "train" / "plan.json").write_text('{"resize": null}')
    assert train(archives, out, "--resize", "32").exit_code == 0
    refused(train(archives, out, "--resize", "33"), "made in another way")


@contextmanager
def no_room_for(name: str) -> Iterator[None]:
    """What is opened under this name, or one on its way to it, is the device that has no room."""
    really_open = os.open

    def opened(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        if isinstance(path, Path) and path.name.startswith(f".{name}."):
            return really_open("/dev/full", os.O_WRONLY)
        return really_open(path, flags, mode, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "open", opened)
        yield


@pytest.mark.parametrize("name", ["classes.txt", "plan.json", "train-00000.tar.index"])
def test_a_disk_that_is_full_from_the_beginning_is_said_as_often_as_asked(
    archives: Archives, out: Path, name: str
) -> None:
    for _ in range(2):
        with no_room_for(name):
            done = train(archives, out, "--workers", 1)
        assert os.strerror(errno.ENOSPC) not in done.output
        refused(done, f"{out} has no room left", "and stay: ", "Free some")
    assert train(archives, out).exit_code == 0


def test_a_disk_that_is_full_at_the_end_is_said(archives: Archives, out: Path) -> None:
    with no_room_for("manifest.json"):
        refused(train(archives, out), "Shards that are written, and stay: 2 of 2")
    assert train(archives, out).exit_code == 0


def test_one_of_a_thing_is_not_said_as_many(archives: Archives, out: Path) -> None:
    done = train(archives, out, "--per-shard", 1000)
    assert "20 images in 1 shard, " in done.output
