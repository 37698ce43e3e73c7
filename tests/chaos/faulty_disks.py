"""Disks that are slow, take nothing, fail or lie: a preloaded library speaks for the disk of the workspace."""

from __future__ import annotations

import ctypes
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.chaos import power, preload, processes
from tests.chaos.checks import Expected
from tests.chaos.power import PowerStage
from tests.chaos.stage import MUSTER, Stage, quiet
from tests.chaos.trial import LINES, NO_RETRY, Fault, Scene

from muster.client.connect import connect
from muster.client.workspace import find_workspace
from muster.errors import MusterError, NotFound

_HELD = ("begun", "middle", "last")
_SOURCE = Path(__file__).with_name("faulty_disk.c")


def _source(mode: Path, disk: Path) -> str:
    return _SOURCE.read_text().replace("@MODE@", str(mode)).replace("@DISK@", str(disk))


@dataclass
class FaultyStage(Stage):
    """The workspace, its store and its nodes are on the disk; the record is not."""

    name: str = "faulty"

    def configure(self) -> None:
        self.mode = self.home / "mode"
        self.behave("sound")
        preload.load(self.home, _source(self.mode, self.folder), self._stack)
        super().configure()

    def behave(self, how: str) -> None:
        preload.tell(self.mode, how)


def _for_a_while(scene: Scene, how: str, most_s: float) -> None:
    stage = scene.stage
    assert isinstance(stage, FaultyStage)
    stage.behave(how)
    timer = threading.Timer(scene.chance.uniform(0.5, most_s), lambda: stage.behave("sound"))
    timer.start()
    scene.undo.append(timer.join)


def slow(scene: Scene) -> Expected:
    _for_a_while(scene, f"slow {scene.chance.choice((5, 50, 300))}", 6.0)
    return Expected()


def slow_and_server_killed(scene: Scene) -> Expected:
    server = scene.stage.server()
    _for_a_while(scene, f"slow {scene.chance.choice((5, 50))}", 6.0)
    server.kill()
    return Expected()


def _takes_nothing(scene: Scene, how: str) -> None:
    """Ranks go on once it does: one whose own file is refused fails by itself, as it should."""
    _for_a_while(scene, how, 4.0)
    scene.undo.pop()()


def read_only(scene: Scene) -> Expected:
    _takes_nothing(scene, "read-only")
    return Expected()


def failing(scene: Scene) -> Expected:
    _takes_nothing(scene, "failing")
    return Expected()


def read_only_and_rank_killed(scene: Scene) -> Expected:
    expected = processes.rank_killed(scene)
    _takes_nothing(scene, "read-only")
    return expected


def failing_and_server_killed(scene: Scene) -> Expected:
    server = scene.stage.server()
    _for_a_while(scene, scene.chance.choice(("read-only", "failing")), 4.0)
    server.kill()
    scene.undo.pop()()
    return Expected()


FAULTY = (
    Fault("a slow disk", slow, (*_HELD, "flowing")),
    Fault("a slow disk, and the server killed", slow_and_server_killed, _HELD),
    Fault("a read-only disk", read_only, _HELD),
    Fault("a disk whose writes fail", failing, _HELD),
    # A further attempt would find a disk that takes nothing, and say so.
    Fault("a read-only disk, and a rank killed", read_only_and_rank_killed, _HELD, retried=(False,)),
    Fault("a disk that takes nothing, and the server killed", failing_and_server_killed, _HELD),
)


@dataclass
class LyingStage(PowerStage):
    """An image whose disk says that it has written what it keeps in memory."""

    name: str = "lying"

    def configure(self) -> None:
        mode = self.home / "mode"
        preload.tell(mode, "lying")
        preload.load(self.home, _source(mode, self.home / "disk"), self._stack)
        super().configure()

    def join(self) -> None:
        """A workspace of yesterday: all that it is made of has reached the disk; what comes later has not."""
        folder = os.open(self.disk, os.O_RDONLY)
        try:
            # By this process, which began without the library.
            ctypes.CDLL(None).syncfs(folder)
        finally:
            os.close(folder)


def lying_missing() -> str:
    return preload.missing() or power.missing()


def power_cut(scene: Scene) -> Expected:
    """What was promised is lost. The workspace must say so or go on without it, and take the next run."""
    stage = scene.stage
    assert isinstance(stage, LyingStage)
    stage.cut_power()
    try:
        stage.client = connect(find_workspace(stage.folder))
    except MusterError as error:
        if "muster repair" not in str(error):
            raise
        quiet(MUSTER, "repair", folder=stage.folder)
        stage.client = connect(find_workspace(stage.folder))
    listed = {run.id for run in stage.client.runs(limit=10_000)}
    stage.record.submitted[:] = [run for run in stage.record.submitted if run in listed]
    if scene.run_id not in listed:
        try:
            stage.client.run(scene.run_id)
        except NotFound:
            command = stage.record.command(LINES, -1, 0.002)
            scene.run_id = stage.submit(command, scene.nodes, scene.ranks, retry=NO_RETRY)
            return Expected()
    expected = scene.fails("node_lost", "platform")
    return Expected(expected.codes, retried=expected.retried, loses="what was never written", exact=False)


LYING = (Fault("a power cut on a disk that lies", power_cut, ("begun", "flowing", "middle", "last")),)
