"""An engine whose machines come, stay away and vanish as a test wishes.

A test controls it through files in a folder (the cluster's option `folder`), because the engine lives in the server's
process: `hold` keeps new nodes from coming; `gone-NODE` makes a node vanish with all its processes; `fails` makes
starting agents an error, and `stuck` makes it take as long as the file is there. The options
`addresses` and `namespaces` put each node into a network namespace of its own, as a separate machine; with
`server_address` its agent reaches the server over that network.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from muster import errors
from muster.engines.agents import start_agent
from muster.engines.base import Cluster, Connection, NodeEngine, NodeLife, NodeOffer, NodeState
from muster.paths import NodePaths
from muster.wire.codec import from_json
from muster.wire.node.agents import AgentConfig

# Its own host name and shared memory: programs tell machines apart by the one and communicate through the other.
_OWN_MACHINE = ["unshare", "--uts", "--mount", "sh", "-c", 'hostname "$0"; mount -t tmpfs shm /dev/shm; exec "$@"']


@dataclass(frozen=True)
class FakeOptions:
    """The fake engine's part of a cluster's options."""

    folder: str
    """Holds the files by which a test controls the engine."""
    max_nodes: int = 2
    gpus: int = 0
    addresses: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    server_address: str | None = None
    """The server's address for the nodes, over TLS; without it they use its socket."""

    @classmethod
    def of(cls, cluster: Cluster) -> FakeOptions:
        if "folder" not in cluster.options:
            raise errors.JobError("the fake engine needs the option `folder`", "Give a folder for its switches.")
        known = {item.name for item in fields(cls)}
        return from_json(cls, {name: value for name, value in cluster.options.items() if name in known})


class FakeEngine(NodeEngine):
    """Separate machines, each with its own host name, CPUs and GPUs."""

    name = "fake"

    def __init__(self) -> None:
        self._folder = Path()
        self._namespaces: dict[str, str] = {}
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._wanted: dict[str, AgentConfig] = {}
        # Several threads start and query nodes.
        self._lock = threading.Lock()

    def check(self, cluster: Cluster) -> list[str]:
        FakeOptions.of(cluster)
        return []

    def nodes(self, cluster: Cluster) -> Sequence[NodeOffer]:
        options = FakeOptions.of(cluster)
        self._folder = Path(options.folder)
        names = [f"{cluster.name}-{index}" for index in range(options.max_nodes)]
        self._namespaces |= dict(zip(names, options.namespaces, strict=False))
        gpus = tuple(str(index) for index in range(options.gpus))
        addresses = options.addresses or ["127.0.0.1"] * options.max_nodes
        return [
            NodeOffer(name, name, address, 2, 4 << 30, gpus) for name, address in zip(names, addresses, strict=True)
        ]

    def start(self, cluster: Cluster, agents: Sequence[AgentConfig]) -> None:
        folder = Path(FakeOptions.of(cluster).folder)
        if (folder / "fails").exists():
            raise OSError(f"{cluster.name} has no machines to give")
        with self._lock:
            self._wanted |= {agent.node: agent for agent in agents}
        while (folder / "stuck").exists():
            time.sleep(0.05)
        with self._lock:
            self._bring()

    def poll(self, cluster: Cluster, nodes: Mapping[str, NodePaths]) -> Mapping[str, NodeState]:
        with self._lock:
            self._bring()
            lives = {node: self._life(node) for node in nodes}
        waits = "the machines are being brought" if "starting" in lives.values() else ""
        return {node: NodeState(life, waits) for node, life in lives.items()}

    def release(self, cluster: Cluster, nodes: Sequence[str]) -> None:
        with self._lock:
            for node in nodes:
                self._end(node)

    def close(self) -> None:
        """Agents outlive the engine."""

    def connection(self, cluster: Cluster) -> Connection | None:
        address = FakeOptions.of(cluster).server_address
        return Connection("tls", address) if address else None

    def scales(self, cluster: Cluster) -> bool:
        return False

    def _bring(self) -> None:
        """Start the requested nodes, unless a test holds them."""
        if (self._folder / "hold").exists() or (self._folder / "stuck").exists():
            return
        for node, agent in self._wanted.items():
            child = self._agents.get(node)
            if not self._gone(node) and (child is None or child.poll() is not None):
                namespace = self._namespaces.get(node)
                within = ["ip", "netns", "exec", namespace, *_OWN_MACHINE, node] if namespace else []
                self._agents[node] = start_agent(NodePaths(Path(agent.root)), within)
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


__all__ = ["FakeEngine"]
