"""A workspace on a small disk of its own, which is full for a while."""

from __future__ import annotations

import shutil
import subprocess
import threading
from dataclasses import dataclass

from tests.chaos import processes
from tests.chaos.checks import Expected
from tests.chaos.stage import Stage, quiet
from tests.chaos.trial import Fault, Scene
from tests.chaos.waiting import until

_HELD = ("begun", "middle", "last")
_SIZE = "96m"


def missing() -> str:
    made = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return "" if made.returncode == 0 else "a disk cannot be mounted here (root is needed)"


@dataclass
class DiskStage(Stage):
    """The workspace, its store and its nodes are on the disk; the record is not."""

    name: str = "disk"

    def configure(self) -> None:
        disk = self.home / "disk"
        disk.mkdir()
        quiet("mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "muster-chaos", disk)
        self._stack.callback(lambda: subprocess.run(["umount", "-l", str(disk)], check=True))
        source = self.folder / "src"
        self.disk, self.folder = disk, disk / "w"
        shutil.copytree(source, self.folder / "src")
        super().configure()

    def submit(self, command: str, nodes: int, ranks: int, **more: object) -> str:
        until(lambda: not self.client.health().trouble, "the word that there is room again")
        return super().submit(command, nodes, ranks, **more)

    def fill(self) -> None:
        """Take every block that is left."""
        with (self.disk / "fill").open("ab", buffering=0) as file:
            for size in (1 << 20, 4096):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        (self.disk / "fill").unlink(missing_ok=True)


def _fill(scene: Scene, most_s: float) -> None:
    stage = scene.stage
    assert isinstance(stage, DiskStage)
    stage.fill()
    timer = threading.Timer(scene.chance.uniform(0.5, most_s), stage.free)
    timer.start()
    # Ranks go on once there is room: one that finds none fails by itself, as it should.
    timer.join()


def full(scene: Scene) -> Expected:
    _fill(scene, 4.0)
    return Expected()


def full_and_server_killed(scene: Scene) -> Expected:
    """The next server starts on a full disk."""
    stage = scene.stage
    assert isinstance(stage, DiskStage)
    stage.fill()
    stage.server().kill()
    timer = threading.Timer(scene.chance.uniform(0.5, 4.0), stage.free)
    timer.start()
    stage.client.health()
    timer.join()
    return Expected()


def full_and_rank_killed(scene: Scene) -> Expected:
    expected = processes.rank_killed(scene)
    _fill(scene, 4.0)
    return expected


def full_and_cancelled(scene: Scene) -> Expected:
    stage = scene.stage
    assert isinstance(stage, DiskStage)
    stage.fill()
    timer = threading.Timer(scene.chance.uniform(0.5, 4.0), stage.free)
    timer.start()
    stage.client.cancel(scene.run_id, force=True)
    timer.join()
    return Expected(("cancelled",), loses="a cancelled run's bytes find no room")


DISKS = (
    Fault("a full disk", full, _HELD),
    Fault("a full disk, and the server killed", full_and_server_killed, _HELD),
    # A further attempt would find no room, and say so.
    Fault("a full disk, and a rank killed", full_and_rank_killed, _HELD, retried=(False,)),
    Fault("a full disk, and the run cancelled", full_and_cancelled, _HELD),
)
