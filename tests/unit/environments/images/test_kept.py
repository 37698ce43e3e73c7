"""Which images Muster made, which of them go, with an engine that only answers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from muster.environments.images import kept
from muster.environments.images.command import APPTAINER, PODMAN, Engine

ENGINE = Engine(PODMAN, "podman")


@dataclass
class Fake:
    """Answers as an engine does."""

    images: dict[str, tuple[str, ...]]
    in_container: set[str] = field(default_factory=set)
    size: int = 10
    label: str = ""
    """What its images are labelled with; this test's own label where it is empty."""

    def __call__(self, command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        words = list(command[1:])
        out, code = "", 0
        if words[0] == "images":
            assert words[-1].startswith(f"label=muster.built={os.getuid()}-")
            mine = words[-1] == f"label={self.label or kept.label()}"
            out = "\n".join(f"sha256:{image}" for image in self.images) if mine else ""
        elif words[:2] == ["image", "inspect"]:
            names = {image: str(list(self.images[image])).replace("'", '"') for image in words[4:]}
            out = "\n".join(f"{image}\t{self.size}\t{text}" for image, text in names.items())
        elif words[0] == "rmi":
            gone = [image for image, names in self.images.items() if {image, *names} & set(words[1:])]
            code = 2 if set(gone) & self.in_container else 0
            for image in gone if code == 0 else ():
                del self.images[image]
        return subprocess.CompletedProcess(list(command), code, out.encode(), b"")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MUSTER_ENVIRONMENTS_DIR", str(tmp_path))
    return tmp_path


def used(image: str, at: float) -> None:
    lock = kept.hold(image)
    os.utime(lock.descriptor, (at, at))
    lock.release()


def test_those_used_longest_ago_go_until_the_rest_fits() -> None:
    fake = Fake({"a" * 64: ("localhost/a:1", "r.io/a:1"), "b" * 64: ("localhost/b:1",), "c" * 64: ()})
    used("sha256:" + "a" * 64, 100.0)
    used("b" * 64, 50.0)
    assert [image.key for image in kept.listing(ENGINE, fake)] == ["a" * 12, "b" * 12, "c" * 12]
    assert kept.evict(ENGINE, fake, 30, keep="") == []
    assert kept.evict(ENGINE, fake, 15, keep="") == ["c" * 12, "localhost/b:1"]
    assert kept.evict(ENGINE, fake, 0, keep="sha256:" + "a" * 64) == []
    assert kept.evict(ENGINE, fake, 0, keep="") == ["localhost/a:1"] and not fake.images


def test_one_that_a_job_or_a_container_uses_stays() -> None:
    fake = Fake({"a" * 64: ("a",), "b" * 64: ("b",)}, in_container={"b" * 64})
    lock = kept.hold("a" * 64)
    held, boxed = kept.listing(ENGINE, fake)
    assert held.in_use and not kept.remove(ENGINE, held, fake)
    assert not boxed.in_use and not kept.remove(ENGINE, boxed, fake)
    assert kept.evict(ENGINE, fake, 0, keep="") == []
    lock.release()
    assert kept.evict(ENGINE, fake, 0, keep="") == ["a"]


def test_those_whose_locks_lie_elsewhere_are_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake({"a" * 64: ("a",)}, label=kept.label())
    monkeypatch.setenv("MUSTER_ENVIRONMENTS_DIR", str(tmp_path / "other"))
    assert kept.listing(ENGINE, fake) == [] and kept.evict(ENGINE, fake, 0, keep="") == []
    assert list(fake.images) == ["a" * 64]


def test_an_engine_that_does_not_answer_has_none() -> None:
    assert kept.listing(ENGINE, lambda command: subprocess.CompletedProcess([], 127, b"", b"no")) == []


def test_apptainers_files_are_images_too() -> None:
    file = kept.images_dir() / "abc.sif"
    file.write_bytes(b"12345")
    engine = Engine(APPTAINER, "apptainer")
    assert kept.listing(engine, Fake({})) == [], "it may be on its way still"
    lock = kept.hold(str(file))
    (image,) = kept.listing(engine, Fake({}))
    assert image.size == 5 and image.in_use
    assert not kept.remove(engine, image, Fake({}))
    lock.release()
    assert kept.evict(engine, Fake({}), 0, keep="") == ["abc.sif"] and not file.exists()
