"""Gangs on Slurm and on Ray: the same faults, and those of their managers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from tests.chaos import processes
from tests.chaos.checks import Expected
from tests.chaos.stage import Stage
from tests.chaos.trial import Fault, Scene
from tests.chaos.waiting import until
from tests.sites import ray as ray_site
from tests.sites import slurm as slurm_site
from tests.sites.ray import RaySite
from tests.sites.slurm import SlurmSite

from muster.wire.runs import RunView

_RUNNING = ("begun", "flowing", "middle", "last")


@dataclass
class SlurmStage(Stage):
    """A private Slurm of four nodes that the stage brings."""

    name: str = "slurm"
    engine: str = "slurm"
    compute: dict[str, str] = field(default_factory=lambda: {"compute": "hpc"})  # type: ignore[assignment]

    def configure(self) -> None:
        super().configure()
        self.slurm = SlurmSite(num_nodes=5)
        self._stack.callback(self.slurm.close)
        self.slurm.start()
        os.environ.update(self.slurm.environment)

    def join(self) -> None:
        options = {"partition": "batch", "poll_seconds": 0.5, "server_address": "127.0.0.1"}
        self.client.create_cluster("hpc", "slurm", options)

    def submit(self, command: str, nodes: int, ranks: int, **more: object) -> str:
        # A node whose daemon was killed is the site's again once Slurm says so.
        until(self.slurm._all_idle, "idle nodes", 60.0)
        return super().submit(command, nodes, ranks, **more)

    def job_of(self, run_id: str) -> str:
        # On a crowded machine the controller may not answer the first time.
        return until(lambda: self._listed(run_id), f"the job of {run_id} in Slurm's queue", 60.0)

    def _listed(self, run_id: str) -> str | None:
        lines = [line.split() for line in self.slurm.command("squeue", "-h", "-o", "%i %j").splitlines()]
        return next((job for job, name in lines if run_id in name), None)

    def is_written_down(self, run_id: str) -> bool:
        """Whether the controller's own record has the job, since it was started."""
        started = self.slurm.command("squeue", "-h", "-j", self.job_of(run_id), "-o", "%S")
        record = self.slurm.root / "state" / "job_state"
        with contextlib.suppress(OSError, ValueError):
            since = datetime.fromisoformat(started).timestamp()
            return record.stat().st_mtime >= since and run_id.encode() in record.read_bytes()
        return False

    def _left(self) -> list[str]:
        jobs = self.slurm.command("squeue", "-h", "-o", "%i %j %T")
        return [f"jobs left in Slurm's queue: {jobs}"] if jobs else []


def _slurm(scene: Scene) -> SlurmStage:
    assert isinstance(scene.stage, SlurmStage)
    return scene.stage


def slurmd_killed(scene: Scene) -> Expected:
    """The daemon of a node dies, and Slurm gives the node up; what runs there goes on until Muster ends it."""
    stage, rank = _slurm(scene), scene.any_rank()
    node = stage.ranks(scene.run_id)[rank].node
    assert node is not None
    stage.slurm.kill_node(node)
    until(lambda: _has_verdict(stage.client.run(scene.run_id)), "the verdict on a node that is down")
    stage.slurm.start_node(node)
    return scene.fails("node_lost", node=node)


def _has_verdict(view: RunView) -> bool:
    """The last one: what is known while the gang is stopped may become more."""
    return view.attempts[0].ended_at is not None


def controller_killed(scene: Scene) -> Expected:
    """It has written the job down: one that forgets a job also gives its number to the next one."""
    stage = _slurm(scene)
    until(lambda: stage.is_written_down(scene.run_id), "the controller's record of the job", 60.0)
    stage.slurm.kill_controller()
    stage.record.go_on(scene.run_id)
    scene.undo.append(stage.slurm.start_controller)
    return Expected()


def job_cancelled(scene: Scene) -> Expected:
    stage = _slurm(scene)
    stage.slurm.command("scancel", stage.job_of(scene.run_id))
    return Expected(("cancelled",))


def job_requeued(scene: Scene) -> Expected:
    stage = _slurm(scene)
    stage.slurm.command("scontrol", "requeue", stage.job_of(scene.run_id))
    until(lambda: _has_verdict(stage.client.run(scene.run_id)), "the verdict on a job that was put back")
    return Expected(("preempted",), retried=True)


_BY_SLURM = (
    Fault("slurmd killed", slurmd_killed, ("begun", "middle"), ((2, 1),)),
    Fault("slurmctld killed and restarted", controller_killed, ("begun", "middle")),
    Fault("the Slurm job cancelled", job_cancelled, ("begun", "middle")),
    Fault("the Slurm job requeued", job_requeued, ("begun", "middle")),
)


def common(*left_out: Callable[[Scene], Expected]) -> tuple[Fault, ...]:
    """The faults of processes, without those that an engine of this kind has no place for."""
    return tuple(fault for fault in processes.PROCESSES if fault.inject not in left_out)


SLURM = (*common(processes.idle_agent_killed), *_BY_SLURM)


def no_slurm() -> str:
    lacking = slurm_site.missing()
    return f"not installed: {', '.join(lacking)}" if lacking else ""


@dataclass
class RayStage(Stage):
    """Three hosts with Ray, each a network namespace."""

    name: str = "ray"
    engine: str = "ray"
    compute: dict[str, str] = field(default_factory=lambda: {"compute": "many"})  # type: ignore[assignment]

    def configure(self) -> None:
        super().configure()
        self.ray = RaySite()
        self._stack.callback(self.ray.close)
        self.ray.start()

    def join(self) -> None:
        self.client.create_cluster("many", "ray", {**self.ray.options, "cut_off_seconds": 8})

    def submit(self, command: str, nodes: int, ranks: int, **more: object) -> str:
        # A fault may have ended Ray on some hosts.
        self.ray.revive()
        return super().submit(command, nodes, ranks, **more)


def _ray(scene: Scene) -> RayStage:
    assert isinstance(scene.stage, RayStage)
    return scene.stage


def _victim(scene: Scene) -> str:
    """A host of the gang that is not Ray's head."""
    stage = _ray(scene)
    nodes = [rank.node for rank in stage.ranks(scene.run_id)]
    return next(str(node) for node in nodes if node != stage.ray.hosts[0])


def raylet_killed(scene: Scene) -> Expected:
    victim = _victim(scene)
    _ray(scene).ray.raylet(victim).kill()
    until(lambda: _has_verdict(scene.stage.client.run(scene.run_id)), "the verdict on a host without Ray")
    return scene.fails("node_lost", node=victim)


def broker_killed(scene: Scene) -> Expected:
    _ray(scene).ray.broker().kill()
    return Expected()


def head_killed(scene: Scene) -> Expected:
    stage = _ray(scene)
    stage.ray.kill_ray(stage.ray.hosts[0])
    until(lambda: _has_verdict(stage.client.run(scene.run_id)), "the verdict on a cluster without a head")
    stage.ray.revive()
    return scene.fails("node_lost")


def host_cut_off(scene: Scene) -> Expected:
    stage, victim = _ray(scene), _victim(scene)
    stage.ray.cut(victim)
    until(lambda: _has_verdict(stage.client.run(scene.run_id)), "the verdict on a host that was cut off")
    stage.ray.heal(victim)
    stage.ray.kill_ray(victim)
    return scene.fails("node_lost", node=victim)


_BY_RAY = (
    Fault("a raylet killed", raylet_killed, ("begun", "middle"), ((2, 1),)),
    Fault("the broker killed", broker_killed, ("begun", "middle"), ((2, 1),)),
    Fault("Ray's head killed", head_killed, ("begun", "middle"), ((2, 1),)),
    Fault("a host cut off", host_cut_off, ("begun", "middle"), ((2, 1),)),
)

RAY = (*common(processes.idle_agent_killed), *_BY_RAY)


def no_ray() -> str:
    return ray_site.missing()


__all__ = ["RAY", "SLURM", "RayStage", "SlurmStage", "no_ray", "no_slurm"]
