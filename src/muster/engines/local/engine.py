"""The embedded engine: this machine, with as many simulated nodes as a job asks for."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import psutil

from muster import errors
from muster.clusters.options import KNOWN, Options, parse_options, refuse_unknown, unknown_size_notice
from muster.defaults import LOCAL_MAX_NODES
from muster.engines.base import Allocation, AllocationState, Cluster, Engine, NodeLife, NodeOffer
from muster.engines.here import start_agent
from muster.paths import NodePaths

_ELSEWHERE = {
    "subnet": "places machines in a network",
    "vnet": "places machines in a network",
    "interface": "chooses between networks of several machines",
    "mounts": "lets several machines see a share",
}


class LocalEngine(Engine):
    """Agents are processes of this machine; they outlive the server."""

    name = "local"
    keeps_nodes = True

    def __init__(self) -> None:
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._offers: dict[tuple[str, str], list[NodeOffer]] = {}

    def check(self, cluster: Cluster) -> list[str]:
        refuse_unknown(cluster.options, KNOWN, "a cluster on this machine")
        options = parse_options(cluster.options)
        if options.max_nodes is not None and options.max_nodes > LOCAL_MAX_NODES:
            raise errors.JobError(
                f"max_nodes is {options.max_nodes}", f"On the local engine it is at most {LOCAL_MAX_NODES}."
            )
        most = options.max_nodes or LOCAL_MAX_NODES
        if options.gpus and options.gpus * most > len(self.gpus):
            raise errors.JobError(
                f"{most} nodes with {options.gpus} GPUs need {options.gpus * most}; this machine has {len(self.gpus)}",
                "Give fewer nodes (max_nodes) or fewer gpus.",
            )
        notices = [*unknown_size_notice(options)]
        if options.vm_size and not has_own_share(options):
            notices.append(
                f"vm_size {options.vm_size} sets the price alone on the local engine: its nodes share this machine"
            )
        if options.cpus and options.cpus > self._cpus:
            notices.append(f"{options.cpus} CPUs per node are simulated: this machine has {self._cpus}")
        given = [key for key in _ELSEWHERE if cluster.options.get(key)]
        return [*notices, *(f"{key} {_ELSEWHERE[key]} and means nothing on the local engine" for key in given)]

    def nodes(self, cluster: Cluster) -> Sequence[NodeOffer]:
        key = (cluster.name, json.dumps(cluster.options, sort_keys=True))
        if key not in self._offers:
            self._offers[key] = self._make_offers(cluster.name, parse_options(cluster.options))
        return self._offers[key]

    def allocate(self, allocation: Allocation) -> None:
        for agent in allocation.agents:
            paths = NodePaths(Path(agent.root))
            if not paths.agent_lives():
                self._children[agent.node] = start_agent(paths)

    def poll(self, allocations: Sequence[Allocation]) -> Mapping[str, AllocationState]:
        for node, child in list(self._children.items()):
            if child.poll() is not None:
                del self._children[node]
        return {allocation.id: self._state(allocation) for allocation in allocations}

    def release(self, allocation: Allocation) -> None:
        """Agents of this machine stay for the next job."""

    def close(self, leave_agents: bool) -> None:
        for child in self._children.values():
            if not leave_agents:
                child.terminate()
                child.wait()
            # Whoever stays is adopted by init; it is no child to wait for.
            child.returncode = child.returncode or 0
        self._children.clear()

    @cached_property
    def gpus(self) -> tuple[str, ...]:
        """Ids of this machine's GPUs, or those that CUDA_VISIBLE_DEVICES leaves."""
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
        if chosen is not None:
            return tuple(part.strip() for part in chosen.split(",") if part.strip() and part.strip() != "-1")
        try:
            listed = subprocess.run(
                ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True, timeout=20
            )
        except (OSError, subprocess.TimeoutExpired):
            return ()
        return tuple(listed.stdout.split()) if listed.returncode == 0 else ()

    @cached_property
    def _cpus(self) -> int:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    @cached_property
    def _memory_bytes(self) -> int:
        return int(psutil.virtual_memory().total)

    @cached_property
    def _host(self) -> str:
        return socket.gethostname()

    def _make_offers(self, cluster: str, options: Options) -> list[NodeOffer]:
        count = options.max_nodes or LOCAL_MAX_NODES
        own = has_own_share(options)
        cpus = options.cpus or self._cpus
        memory = int(options.memory_gb * 1e9) if options.memory_gb else self._memory_bytes
        each = options.gpus or 0
        return [
            NodeOffer(
                f"{cluster}-{index}",
                self._host,
                "127.0.0.1",
                cpus,
                memory,
                self.gpus[index * each : (index + 1) * each] if own else self.gpus,
                own_share=own,
            )
            for index in range(count)
        ]

    def _state(self, allocation: Allocation) -> AllocationState:
        lives = {agent.node: self._life(agent.node, agent.root) for agent in allocation.agents}
        last = [_last_words(NodePaths(Path(agent.root))) for agent in allocation.agents if lives[agent.node] == "gone"]
        return AllocationState(lives, last[0] if last else "")

    def _life(self, node: str, root: str) -> NodeLife:
        if NodePaths(Path(root)).agent_lives():
            return "up"
        return "starting" if node in self._children else "gone"


def has_own_share(options: Options) -> bool:
    """Whether each node has CPUs and GPUs of its own; otherwise all share the machine."""
    return options.cpus is not None or options.gpus is not None


def _last_words(paths: NodePaths) -> str:
    """The last line of an agent's log, for an agent that did not come or did not stay."""
    try:
        lines = paths.log.read_text(errors="replace")[-4000:].strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
