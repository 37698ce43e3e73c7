"""Power cuts: an image of the workspace's disk, copied in the middle, has what was synced and nothing else."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil
from tests.chaos.checks import Expected
from tests.chaos.processes import kill
from tests.chaos.stage import Stage, processes_of, quiet
from tests.chaos.trial import Fault, Scene
from tests.chaos.waiting import until

from muster.client.connect import connect
from muster.client.workspace import find_workspace

_SIZE = "256M"
_MOMENTS = ("begun", "flowing", "middle", "last")


def missing() -> str:
    lacking = [name for name in ("mkfs.ext4", "losetup") if shutil.which(name) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)}"
    free = subprocess.run(["losetup", "--find"], capture_output=True, check=False)
    return "" if free.returncode == 0 else "there is no loop device (root is needed)"


@dataclass
class PowerStage(Stage):
    """The workspace, its store and its nodes are on an image that is mounted; the record is not."""

    name: str = "power"

    def configure(self) -> None:
        self.image, self.disk = self.home / "image", self.home / "disk"
        self.disk.mkdir()
        quiet("truncate", "-s", _SIZE, self.image)
        quiet("mkfs.ext4", "-q", self.image)
        self.mount()
        self._stack.callback(self.unmount)
        source = self.folder / "src"
        self.folder = self.disk / "w"
        shutil.copytree(source, self.folder / "src")
        super().configure()
        quiet("sync", "-f", self.disk)

    def mount(self) -> None:
        quiet("mount", "-o", "loop", self.image, self.disk)

    def image_now(self) -> Path:
        """A copy as of one moment; what the kernel has not written to the image yet is lost."""
        copy = self.home / "copy"
        while True:
            before = self.image.stat().st_mtime_ns
            quiet("cp", "--sparse=always", self.image, copy)
            if self.image.stat().st_mtime_ns == before:
                return copy

    def cut_power(self) -> None:
        """There is no server afterwards."""
        everybody = processes_of(self.folder)
        for process in everybody:
            with contextlib.suppress(psutil.Error):
                process.suspend()
        copy = self.image_now()
        kill(everybody)
        until(lambda: not processes_of(self.folder), "the end of everything", 30.0)
        self.client.close()
        self.unmount()
        copy.replace(self.image)
        self.mount()

    def unmount(self) -> None:
        def gone() -> bool:
            return subprocess.run(["umount", str(self.disk)], capture_output=True, check=False).returncode == 0

        until(gone, "the end of all who use the disk", 30.0)


def power_cut(scene: Scene) -> Expected:
    """Everything ends at once, and the disk comes back as it was at that moment."""
    stage = scene.stage
    assert isinstance(stage, PowerStage)
    stage.cut_power()
    stage.client = connect(find_workspace(stage.folder))
    expected = scene.fails("node_lost", "platform")
    return Expected(expected.codes, retried=expected.retried, loses="what was not synced", exact=False)


POWER = (Fault("a power cut", power_cut, _MOMENTS),)
