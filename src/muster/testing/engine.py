"""An engine whose machines come, stay away and vanish as a test wishes.

Its switchboard is a folder (the cluster's option `folder`), because the engine lives in the server's process:
a file `hold` keeps new nodes from coming; a file `gone-NODE` makes a node vanish with all its processes.
The options `addresses` and `namespaces` put each node into a network namespace of its own, as a separate machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from muster import errors
from muster.engines.base import Allocation, AllocationState, Cluster, Engine, NodeLife, NodeOffer
from muster.paths import NodePaths
from muster.wire.node.agents import AgentConfig

# A host name and shared memory of its own: programs tell machines apart by the one and meet in the other.
_OWN_MACHINE = ["unshare", "--uts", "--mount", "sh", "-c", 'hostname "$0"; mount -t tmpfs shm /dev/shm; exec "$@"']


class FakeEngine(Engine):
    """Separate machines, each with its own host name, CPUs and GPUs."""

    name = "fake"

    def __init__(self) -> None:
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._wanted: dict[str, AgentConfig] = {}
        self._folder = Path()
        self._namespaces: dict[str, str] = {}

    def check(self, cluster: Cluster) -> list[str]:
        if "folder" not in cluster.options:
            raise errors.JobError("the fake engine needs the option `folder`", "Give a folder for its switches.")
        return []

    def nodes(self, cluster: Cluster) -> Sequence[NodeOffer]:
        options = cluster.options
        self._folder = Path(options["folder"])
        gpus = tuple(str(index) for index in range(options.get("gpus", 0)))
        count = options.get("max_nodes", 2)
        addresses = options.get("addresses") or ["127.0.0.1"] * count
        names = [f"{cluster.name}-{index}" for index in range(count)]
        self._namespaces |= dict(zip(names, options.get("namespaces", ()), strict=False))
        return [
            NodeOffer(name, name, address, 2, 4 << 30, gpus) for name, address in zip(names, addresses, strict=True)
        ]

    def allocate(self, allocation: Allocation) -> None:
        self._wanted |= {agent.node: agent for agent in allocation.agents}
        self._bring()

    def poll(self, allocations: Sequence[Allocation]) -> Mapping[str, AllocationState]:
        found = {}
        for allocation in allocations:
            self._bring()
            lives = {agent.node: self._life(agent.node) for agent in allocation.agents}
            waits = "the machines are being brought" if "starting" in lives.values() else ""
            found[allocation.id] = AllocationState(lives, waits)
        return found

    def release(self, allocation: Allocation) -> None:
        for agent in allocation.agents:
            self._end(agent.node)

    def close(self, leave_agents: bool) -> None:
        if not leave_agents:
            for node in list(self._agents):
                self._end(node)

    def _bring(self) -> None:
        """Start what was asked for, unless nothing may come now."""
        if (self._folder / "hold").exists():
            return
        for node, agent in self._wanted.items():
            child = self._agents.get(node)
            if not self._gone(node) and (child is None or child.poll() is not None):
                self._agents[node] = _start(agent, self._namespaces.get(node))
        self._wanted.clear()

    def _life(self, node: str) -> NodeLife:
        if self._gone(node):
            self._end(node)
            return "gone"
        if node in self._wanted:
            return "starting"
        child = self._agents.get(node)
        return "up" if child is not None and child.poll() is None else "gone"

    def _gone(self, node: str) -> bool:
        return (self._folder / f"gone-{node}").exists()

    def _end(self, node: str) -> None:
        child = self._agents.pop(node, None)
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _start(agent: AgentConfig, namespace: str | None) -> subprocess.Popen[bytes]:
    paths = NodePaths(Path(agent.root))
    inside = ["ip", "netns", "exec", namespace, *_OWN_MACHINE, agent.node] if namespace else []
    with paths.log.open("ab") as log:
        return subprocess.Popen(
            [*inside, sys.executable, "-m", "muster.agent", str(paths.config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
