"""Pools of nodes on a fake of Slurm's commands: one array for many nodes, found again, given back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from muster import errors
from muster.engines.base import Cluster, NodeState
from muster.engines.slurm.commands import Commands
from muster.engines.slurm.engine import SlurmEngine
from muster.engines.slurm.names import allocation_of
from muster.engines.slurm.parsing import NodeInfo
from muster.engines.slurm.sites import SlurmSites
from muster.engines.slurm_pool.engine import SlurmPool
from muster.engines.slurm_pool.options import PoolOptions
from muster.engines.slurm_pool.script import make_pool_script, pool_name
from muster.paths import NodePaths
from muster.testing.slurm import FakeSlurm
from muster.wire.node.agents import AgentConfig

NODES = [NodeInfo("n1", "idle", 8, 64_000, "", None, 2), NodeInfo("n2", "idle", 4, 32_000, "", None, 2)]


class Bed:
    """A pool of at most four nodes, with a clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slurm = FakeSlurm()
        self.now = 0.0
        self.cluster = Cluster("small", "slurm-pool", {"partition": "batch", "max_nodes": 4})
        self.pool = self.new()

    def new(self) -> SlurmPool:
        commands = Commands(self.slurm.run, wait=lambda _: None)
        sites = SlurmSites(lambda _: SlurmEngine(commands, clock=lambda: self.now))
        return SlurmPool(sites, clock=lambda: self.now)

    def start(self, *numbers: int) -> None:
        roots = [self.folder / f"small-{number}" for number in numbers]
        self.pool.start(self.cluster, [AgentConfig(root.name, "small", str(root), (), "t") for root in roots])

    def states(self, *numbers: int) -> Sequence[NodeState]:
        self.now += 10.0
        nodes = {f"small-{number}": NodePaths(self.folder / f"small-{number}") for number in numbers}
        return list(self.pool.poll(self.cluster, nodes).values())

    def move(self, number: int, **changes: Any) -> str:
        job = next(job.id for job in self.slurm.jobs.values() if job.id.endswith(f"_{number}"))
        self.slurm.move(job, **changes)
        return job


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def test_nodes_that_are_wanted_together_are_one_array(bed: Bed):
    bed.start(0, 1, 3)
    assert bed.slurm.calls["sbatch"] == 1
    assert "#SBATCH --array=0-1,3\n" in bed.slurm.jobs["1_0"].script
    bed.start(0, 1, 3)
    waiting, *_ = bed.states(0, 1, 3)
    assert bed.slurm.calls["sbatch"] == 1
    assert waiting.life == "starting" and "in the queue of Slurm as job 1_0" in waiting.reason
    bed.move(0, state="RUNNING", nodes="n1")
    assert [state.life for state in bed.states(0, 1)] == ["up", "starting"]


def test_a_new_server_finds_the_tasks_of_the_old_one(bed: Bed):
    bed.start(0, 1)
    bed.move(1, state="RUNNING", nodes="n2")
    bed.pool = bed.new()
    bed.start(0, 1)
    assert [state.life for state in bed.states(0, 1)] == ["starting", "up"]
    assert bed.slurm.calls["sbatch"] == 1


def test_a_node_whose_task_has_ended_says_how_and_is_asked_for_again(bed: Bed):
    bed.start(0)
    bed.move(0, state="TIMEOUT")
    (state,) = bed.states(0)
    assert state.life == "gone" and "time limit" in state.reason
    bed.start(0)
    assert bed.slurm.calls["sbatch"] == 2
    assert bed.states(0)[0].life == "starting"


def test_an_answer_that_was_lost_does_not_bring_nodes_twice(bed: Bed):
    bed.slurm.lost_answers = 1
    bed.start(0, 1)
    assert [state.life for state in bed.states(0, 1)] == ["starting", "starting"]
    bed.states(0, 1)
    assert bed.slurm.calls["sbatch"] == 1


def test_a_busy_controller_loses_nobody(bed: Bed):
    bed.start(0)
    bed.slurm.busy = 1
    (state,) = bed.states(0)
    assert state.life == "starting" and "Slurm" in state.reason
    bed.move(0, state="RUNNING", nodes="n1")
    assert bed.states(0)[0].life == "up"


def test_what_slurm_forgot_is_submitted_again(bed: Bed):
    bed.start(0)
    bed.states(0)
    bed.pool = bed.new()
    bed.start(1)
    bed.slurm.jobs.clear()
    bed.states(1)
    bed.states(1)
    bed.states(1)
    assert bed.slurm.calls["sbatch"] == 3


def test_what_slurm_refuses_is_said(bed: Bed):
    bed.slurm.refusal = "Invalid account or account/partition combination specified"
    bed.start(0)
    (state,) = bed.states(0)
    assert state.life == "gone" and "Invalid account" in state.reason


def test_nodes_that_are_given_back_are_cancelled(bed: Bed):
    bed.start(0, 1)
    bed.states(0, 1)
    bed.pool.release(bed.cluster, ["small-1"])
    assert bed.slurm.jobs["1_1"].state == "CANCELLED" and bed.slurm.jobs["1_0"].state == "PENDING"


def test_offers_are_alike_and_the_same_list_while_nothing_changes(bed: Bed):
    offers = bed.pool.nodes(bed.cluster)
    assert [offer.name for offer in offers] == ["small-0", "small-1", "small-2", "small-3"]
    assert {offer.cpus for offer in offers} == {4} and bed.pool.nodes(bed.cluster) is offers
    fewer = replace(bed.cluster, options={**bed.cluster.options, "max_nodes": 2})
    assert len(bed.pool.nodes(fewer)) == 2


def test_settings_of_pools_have_a_meaning_and_chains_have_none(bed: Bed):
    kept = replace(bed.cluster, options={**bed.cluster.options, "min_nodes": 1})
    assert not [said for said in bed.pool.check(kept) if "min_nodes" in said]
    with pytest.raises(errors.JobError, match="chain"):
        bed.pool.check(replace(bed.cluster, options={"chain": True}))


def test_the_script_can_be_read():
    options = PoolOptions.parse({"partition": "gpu", "time": 90, "account": "lab"})
    script = make_pool_script("small", Path("/ws/nodes"), [0, 1, 2, 7], options, NODES)
    assert "--array=0-2,7\n" in script and "--time=90\n" in script and "--account=lab\n" in script
    assert "--cpus-per-task=4\n" in script and "--gres=gpu:2\n" in script and "--no-requeue\n" in script
    assert "--output=/ws/nodes/small-%a.out\n" in script
    assert 'MUSTER_CONFIG=/ws/nodes/small-"$SLURM_ARRAY_TASK_ID"/agent.json' in script
    assert allocation_of(pool_name("v1.5", Path("/ws"))) is None


def test_a_pool_may_leave_the_gpus_to_others():
    with_gpus = [replace(node, gpus=4) for node in NODES]
    by_gpus = {
        gpus: make_pool_script("small", Path("/ws/nodes"), [0], PoolOptions.parse({"gpus": gpus}), with_gpus)
        for gpus in (None, 0, 1)
    }
    asked = {gpus: [line for line in script.splitlines() if "gres" in line] for gpus, script in by_gpus.items()}
    assert asked == {None: ["#SBATCH --gres=gpu:4"], 0: [], 1: ["#SBATCH --gres=gpu:1"]}
