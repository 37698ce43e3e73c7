"""A pool of nodes that Slurm lends: they stay between runs, so that many small runs do not queue there one by one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from muster.engines.agents import Collectors
from muster.engines.base import Cluster, Connection, NodeEngine, NodeOffer, NodeState
from muster.engines.slurm import explanations
from muster.engines.slurm.asking import Asker
from muster.engines.slurm.commands import Busy, Commands, Refused
from muster.engines.slurm.engine import SlurmEngine
from muster.engines.slurm.parsing import Job
from muster.engines.slurm.sites import SlurmSites
from muster.engines.slurm_pool.options import PoolOptions
from muster.engines.slurm_pool.script import make_pool_script, pool_name, shape_of
from muster.paths import NodePaths
from muster.wire.node.agents import AgentConfig

log = logging.getLogger("muster.server")

_FORGOTTEN_S = 10.0
_HAS_MEANING = ("min_nodes", "idle_seconds_before_scaledown", "preemption", "max_passed_over")


@dataclass
class _Pool:
    """The state of one cluster's arrays."""

    name: str
    folder: Path
    commands: Commands
    jobs: dict[int, Job] = field(default_factory=dict)
    """The last task of each node."""
    wanted: set[int] = field(default_factory=set)
    """Nodes that have not been requested from Slurm yet."""
    sent: dict[int, tuple[str, float]] = field(default_factory=dict)
    """Nodes that were requested from Slurm and are not listed: the array's id, and the time."""
    refusal: str = ""
    trouble: str = ""
    answered_at: float = float("-inf")


class SlurmPool(NodeEngine):
    """The server places runs on these nodes; Slurm sees one job array for all nodes that are wanted at a time."""

    name = "slurm-pool"

    def __init__(self, sites: SlurmSites | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._sites = sites or SlurmSites()
        self._clock = clock
        self._lock = threading.RLock()
        self._pools: dict[str, _Pool] = {}
        self._askers: dict[str, Asker] = {}
        self._offers: dict[str, tuple[object, PoolOptions, list[NodeOffer]]] = {}
        self._collectors = Collectors()

    def check(self, cluster: Cluster) -> list[str]:
        PoolOptions.refuse_unknown(cluster.options)
        PoolOptions.parse(cluster.options).refuse_impossible()
        site, plain = self._site(cluster)
        return site.check(plain)

    def nodes(self, cluster: Cluster) -> Sequence[NodeOffer]:
        options = PoolOptions.parse(cluster.options)
        known = self._site(cluster)[0].partitions.nodes(options.partition)
        with self._lock:
            made = self._offers.get(cluster.name)
            if made is None or made[0] is not known or made[1] != options:
                cpus, gpus = shape_of(options, known)
                memory = min((node.memory_mb << 20 for node in known), default=0)
                memory = min(memory, int(options.memory_gb * 1e9)) if options.memory_gb else memory
                names = [f"{cluster.name}-{number}" for number in range(options.max_nodes or len(known))]
                offers = [NodeOffer.of_machine(name, "", cpus, memory, gpus, "", "") for name in names]
                made = self._offers[cluster.name] = (known, options, offers)
            return made[2]

    def start(self, cluster: Cluster, agents: Sequence[AgentConfig]) -> None:
        if not agents:
            return
        pool = self._pool(cluster, Path(agents[0].root).parent)
        with self._lock:
            pool.refusal = ""
            pool.wanted |= {_number(agent.node) for agent in agents}
        self._look(pool)
        self._submit(cluster, pool)

    def poll(self, cluster: Cluster, nodes: Mapping[str, NodePaths]) -> Mapping[str, NodeState]:
        if not nodes:
            return {}
        options = PoolOptions.parse(cluster.options)
        pool = self._pool(cluster, next(iter(nodes.values())).root.parent)
        self._askers[cluster.name].ask(options.poll_seconds)
        if pool.wanted:
            self._submit(cluster, pool)
        return {node: self._state(pool, _number(node), paths) for node, paths in nodes.items()}

    def release(self, cluster: Cluster, nodes: Sequence[str]) -> None:
        with self._lock:
            pool = self._pools.get(cluster.name)
            if pool is None:
                return
            numbers = {_number(node) for node in nodes}
            pool.wanted -= numbers
            jobs = [job.id for number, job in pool.jobs.items() if number in numbers and not job.is_over]
        for job in jobs:
            try:
                pool.commands.cancel(job)
            except (Busy, Refused) as error:
                log.warning("Slurm job %s is not cancelled: %s", job, error)

    def trouble(self, cluster: Cluster, patience_s: float = 0.0) -> str:
        site, plain = self._site(cluster)
        return site.trouble(plain, patience_s)

    def about(self, cluster: Cluster) -> str:
        site, plain = self._site(cluster)
        return site.about(plain)

    def connection(self, cluster: Cluster) -> Connection:
        site, plain = self._site(cluster)
        return site.connection(plain)

    def close(self) -> None:
        self._sites.close()
        self._collectors.close()

    def _site(self, cluster: Cluster) -> tuple[SlurmEngine, Cluster]:
        """The submitter of the cluster's Slurm, and the cluster without the settings that only pools have."""
        options = {key: value for key, value in cluster.options.items() if key not in _HAS_MEANING}
        return self._sites.of(cluster), replace(cluster, options=options)

    def _pool(self, cluster: Cluster, folder: Path) -> _Pool:
        with self._lock:
            if cluster.name not in self._pools:
                pool = _Pool(pool_name(cluster.name, folder), folder, self._sites.of(cluster).commands)
                self._pools[cluster.name] = pool
                self._askers[cluster.name] = Asker(partial(self._look, pool), "squeue", self._clock)
            return self._pools[cluster.name]

    def _look(self, pool: _Pool) -> None:
        """Query Slurm for the pool's tasks; of a node's tasks the one that has not ended counts, otherwise the last."""
        try:
            found = pool.commands.tasks(pool.name)
        except (Busy, Refused) as error:
            log.warning("Slurm was asked about the nodes of a pool in vain: %s", error)
            pool.trouble = str(error)
            return
        ordered = sorted(found, key=lambda job: (not job.is_over, int(_array(job))))
        with self._lock:
            pool.trouble = ""
            pool.answered_at = self._clock()
            pool.jobs = {int(job.id.partition("_")[2]): job for job in ordered}
            alive = {number for number, job in pool.jobs.items() if not job.is_over}
            pool.wanted -= alive
            listed = {(_array(job), int(job.id.partition("_")[2])) for job in found}
            pool.sent = {number: sent for number, sent in pool.sent.items() if (sent[0], number) not in listed}
            late = {number for number, (_, at) in pool.sent.items() if pool.answered_at - at > _FORGOTTEN_S}
            # A controller that crashed right away may have forgotten what it accepted.
            pool.wanted |= late - alive
            pool.sent = {number: sent for number, sent in pool.sent.items() if number not in late}

    def _submit(self, cluster: Cluster, pool: _Pool) -> None:
        """Request all nodes that are wanted, with one array."""
        options = PoolOptions.parse(cluster.options)
        with self._lock:
            numbers = sorted(pool.wanted - pool.sent.keys())
            if not numbers or pool.trouble:
                return
            nodes = self._sites.of(cluster).partitions.nodes(options.partition)
            script = make_pool_script(cluster.name, pool.folder, numbers, options, nodes)
            try:
                job = pool.commands.submit(script)
            except Busy as error:
                # Whether Slurm accepted it shows when it answers again.
                pool.trouble = str(error)
                return
            except Refused as error:
                pool.refusal = str(error)
                pool.wanted.clear()
                return
            pool.wanted -= set(numbers)
            pool.sent |= dict.fromkeys(numbers, (job, self._clock()))
        log.info("Slurm job %s brings %d nodes of %s", job, len(numbers), cluster.name)

    def _state(self, pool: _Pool, number: int, paths: NodePaths) -> NodeState:
        with self._lock:
            job = pool.jobs.get(number)
            is_coming = number in pool.wanted or number in pool.sent
            trouble, has_answered = pool.trouble, pool.answered_at > float("-inf")
        if job is not None and not job.is_over:
            waits = NodeState("starting", explanations.why_it_waits(job))
            return waits if job.waits else NodeState("up", f"Slurm job {job.id} on {job.nodes}")
        if trouble or not has_answered:
            return NodeState("starting", f"Slurm does not answer{f': {trouble}' if trouble else ' yet'}")
        if is_coming:
            return NodeState("starting", "it is being asked for from Slurm")
        if self._collectors.work_on(paths):
            return NodeState("starting", "what it left is being delivered")
        if pool.refusal:
            return NodeState("gone", f"Slurm refused it: {pool.refusal}")
        if job is None:
            return NodeState("gone", "Slurm does not have it")
        return NodeState("gone", explanations.how_it_ended(job, chain=False, warned_s=0.0).message)


def _array(job: Job) -> str:
    return job.id.partition("_")[0]


def _number(node: str) -> int:
    return int(node.rpartition("-")[2])
