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

from muster.engines.agents import last_words, leave_running, start_agent
from muster.engines.base import Cluster, NodeEngine, NodeOffer, NodeState
from muster.engines.local.options import LocalOptions
from muster.paths import NodePaths
from muster.wire.node.agents import AgentConfig


class LocalEngine(NodeEngine):
    """Agents are processes of this machine; they outlive the server."""

    name = "local"
    on_this_machine = True

    def __init__(self) -> None:
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._offers: dict[tuple[str, str], list[NodeOffer]] = {}

    def check(self, cluster: Cluster) -> list[str]:
        LocalOptions.refuse_unknown(cluster.options)
        options = LocalOptions.parse(cluster.options)
        options.refuse_impossible(len(self.gpus))
        return list(options.notices(self._cpus))

    def nodes(self, cluster: Cluster) -> Sequence[NodeOffer]:
        key = (cluster.name, json.dumps(cluster.options, sort_keys=True))
        if key not in self._offers:
            self._offers[key] = self._make_offers(cluster.name, LocalOptions.parse(cluster.options))
        return self._offers[key]

    def start(self, cluster: Cluster, agents: Sequence[AgentConfig]) -> None:
        for agent in agents:
            paths = NodePaths(Path(agent.root))
            if not paths.agent_lives():
                self._children[agent.node] = start_agent(paths)

    def poll(self, cluster: Cluster, nodes: Mapping[str, NodePaths]) -> Mapping[str, NodeState]:
        for node, child in list(self._children.items()):
            if child.poll() is not None:
                # Another thread may have checked too.
                self._children.pop(node, None)
        return {node: self._state(node, paths) for node, paths in nodes.items()}

    def release(self, cluster: Cluster, nodes: Sequence[str]) -> None:
        """There is nothing to give back of a node whose agent is gone."""

    def close(self) -> None:
        leave_running(self._children.values())
        self._children.clear()

    def scales(self, cluster: Cluster) -> bool:
        """Clusters that a user created do; the built-in one is the whole machine."""
        return cluster.name != self.name

    @cached_property
    def gpus(self) -> tuple[str, ...]:
        """Ids of this machine's GPUs, or those that CUDA_VISIBLE_DEVICES leaves visible."""
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

    def _make_offers(self, cluster: str, options: LocalOptions) -> list[NodeOffer]:
        cpus = options.cpus or self._cpus
        memory = int(options.memory_gb * 1e9) if options.memory_gb else self._memory_bytes
        own, each, host = options.has_own_share, options.gpus or 0, socket.gethostname()
        return [
            NodeOffer(
                f"{cluster}-{index}",
                host,
                "127.0.0.1",
                cpus,
                memory,
                self.gpus[index * each : (index + 1) * each] if own else self.gpus,
                own_share=own,
            )
            for index in range(options.most_nodes)
        ]

    def _state(self, node: str, paths: NodePaths) -> NodeState:
        if paths.agent_lives():
            return NodeState("up")
        return NodeState("starting") if node in self._children else NodeState("gone", last_words(paths))
