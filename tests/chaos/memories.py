"""Ranks in a memory cgroup of their own, as `cgexec`, Slurm and site scripts make them, which one of them uses up."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.checks import Expected
from tests.chaos.stage import Stage
from tests.chaos.trial import Fault, Scene
from tests.chaos.waiting import until

_HELD = ("begun", "middle", "last")
_LIMIT_BYTES = 120 << 20


def _own() -> Path | None:
    """The folder of this process's memory cgroup, in version 1."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    return next(
        (Path(f"/sys/fs/cgroup/memory{path}") for _, kinds, path in lines if "memory" in kinds.split(",")), None
    )


def missing() -> str:
    own = _own()
    return "" if own and os.access(own, os.W_OK) else "no memory cgroup of version 1 can be made here (root is needed)"


@dataclass
class MemoryStage(Stage):
    """The ranks of a run share little memory; servers, agents and keepers have as much as before."""

    name: str = "memory"

    def configure(self) -> None:
        super().configure()
        own = _own()
        assert own is not None
        self.cgroup = own / f"muster-chaos-{os.getpid()}-{self.home.name}"
        self.cgroup.mkdir()
        self._stack.callback(self._remove)
        (self.cgroup / "memory.limit_in_bytes").write_text(str(_LIMIT_BYTES))
        self.record.limit(self.cgroup)

    def _remove(self) -> None:
        until(lambda: not (self.cgroup / "cgroup.procs").read_text().strip(), "an empty cgroup", 60.0)
        self.cgroup.rmdir()


def rank_out_of_memory(scene: Scene) -> Expected:
    return _used_up(scene, "itself")


def child_out_of_memory(scene: Scene) -> Expected:
    """What a rank has started is killed, and the rank ends with the code that a shell gives for that."""
    return _used_up(scene, "child")


def _used_up(scene: Scene, by: str) -> Expected:
    rank, stage = scene.any_rank(), scene.stage
    stage.record.use_up_memory(scene.run_id, rank, by)
    until(lambda: stage.client.run(scene.run_id).attempts[0].ended_at is not None, "the end of a rank without memory")
    return scene.fails("host_oom", rank=rank)


MEMORY = (
    Fault("a rank's memory used up", rank_out_of_memory, _HELD),
    Fault("the memory of a rank's child used up", child_out_of_memory, _HELD),
)
