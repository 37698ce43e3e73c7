"""Gangs in containers: the same faults, and those of the container's own processes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil
from tests.chaos import processes
from tests.chaos.checks import Expected, Leftovers, marked
from tests.chaos.stage import Gang, Stage, processes_of, quiet
from tests.chaos.trial import Fault, Scene
from tests.chaos.waiting import until
from tests.integration.containers.conftest import MACHINE

IMAGE = "localhost/muster-test/python:bookworm-1"
"""The one that the tests of containers make (tests/integration/containers)."""
_RUNNING = ("begun", "flowing", "middle", "last")


def missing() -> str:
    if os.getuid() != 0 or shutil.which("podman") is None:
        return "podman is not installed, or this is not root"
    there = subprocess.run(["podman", "image", "exists", IMAGE], capture_output=True, check=False)
    return "" if there.returncode == 0 else f"there is no image {IMAGE}: the tests of containers make it"


@dataclass
class ContainerLeftovers(Leftovers):
    """Containers too, running or not."""

    def _now(self, run_id: str) -> list[str]:
        listed = quiet("podman", "ps", "--all", "--format", "{{.Names}}").split()
        return [*super()._now(run_id), *(f"container {name}" for name in listed if run_id in name)]


@dataclass
class ContainerStage(Stage):
    """A local workspace whose jobs run in containers of podman."""

    name: str = "containers"
    compute: dict[str, object] = field(default_factory=lambda: {"environment": {"image": IMAGE}})  # type: ignore[assignment]

    def configure(self) -> None:
        super().configure()
        os.environ["MUSTER_CONTAINER_ENGINE"] = "podman"
        # The record outside Muster is the same folder inside.
        os.environ["MUSTER_CONTAINER_ARGS"] = f"{MACHINE} -v {self.record.folder}:{self.record.folder}"

    @property
    def leftovers(self) -> Leftovers:
        return ContainerLeftovers(self.folder / ".muster" / "nodes")

    def gang(self, run_id: str, rank: int) -> Gang:
        node = str(self.ranks(run_id)[rank].node)
        agent = next(item for item in processes_of(self.folder) if f"nodes/{node}/agent.json" in item.cmdline()[-1])
        nursery = next(item for item in agent.children() if "muster.agent.run.nursery" in " ".join(item.cmdline()))
        (keeper,) = nursery.children()
        return Gang(self.rank(run_id, rank), keeper, nursery, agent)

    def rank(self, run_id: str, rank: int) -> psutil.Process:
        """As this machine numbers it."""
        return until(lambda: next(self._ranks(run_id, rank), None), f"rank {rank} of {run_id}")

    def _ranks(self, run_id: str, rank: int) -> Iterator[psutil.Process]:
        for process in marked(run_id):
            if "rank.py" in " ".join(process.cmdline()) and process.environ().get("RANK") == str(rank):
                yield process

    def above(self, run_id: str, rank: int) -> tuple[psutil.Process, psutil.Process]:
        """The keeper inside, which is the container's first process, and the process of podman that watches over it."""
        inside = self.rank(run_id, rank).parent()
        watcher = inside.parent() if inside else None
        if inside is None or watcher is None or watcher.name() != "conmon":
            raise psutil.NoSuchProcess(0, msg=f"nobody watches over the container of rank {rank}")
        return inside, watcher


def _above(scene: Scene) -> tuple[psutil.Process, psutil.Process]:
    assert isinstance(scene.stage, ContainerStage)
    return scene.stage.above(scene.run_id, scene.any_rank())


def container_killed(scene: Scene) -> Expected:
    """Its first process, and so all of it."""
    _above(scene)[0].kill()
    return scene.fails("signal", "platform")


def watcher_killed(scene: Scene) -> Expected:
    """What is inside may go on, or end with it."""
    _above(scene)[1].kill()
    return Expected(("platform", "signal"), retried=scene.retried, exact=False)


def container_stopped(scene: Scene) -> Expected:
    """The keeper inside hangs for a while."""
    processes.pause(scene, _above(scene)[0], 3.0)
    return Expected()


def client_killed(scene: Scene) -> Expected:
    """The program that started the container; the container may go on, or end with it."""
    keeper = scene.stage.gang(scene.run_id, scene.any_rank()).keeper
    for child in keeper.children():
        child.kill()
    return Expected(("platform", "signal"), retried=scene.retried, exact=False)


def container_and_server_killed(scene: Scene) -> Expected:
    processes.kill([_above(scene)[0], scene.stage.server()])
    return scene.fails("signal", "platform")


CONTAINERS = (
    Fault("a container killed", container_killed, _RUNNING),
    Fault("a rank killed", processes.rank_killed, _RUNNING),
    Fault("conmon killed", watcher_killed, _RUNNING),
    Fault("the server killed", processes.server_killed, _RUNNING),
    Fault("a keeper killed", processes.keeper_killed, _RUNNING),
    Fault("a container's keeper stopped and continued", container_stopped, _RUNNING),
    Fault("the engine's program killed", client_killed, _RUNNING),
    Fault("an agent killed", processes.agent_killed, _RUNNING),
    Fault("agent, nursery and keeper killed at once", processes.node_killed, _RUNNING),
    Fault("a container and the server killed", container_and_server_killed, _RUNNING),
    Fault("cancelled while a keeper hangs", processes.cancelled_while_stopped, ("begun", "middle")),
)
