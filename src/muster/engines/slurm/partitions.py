"""The nodes of partitions: queried from time to time, answered at once."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from muster.engines.base import NodeOffer
from muster.engines.slurm.commands import Busy, Commands, Refused
from muster.engines.slurm.explanations import node_state
from muster.engines.slurm.options import SlurmOptions
from muster.engines.slurm.parsing import NodeInfo
from muster.engines.slurm.script import gpus_per_node

log = logging.getLogger("muster.server")

_FRESH_S = 30.0
_AGAIN_S = 5.0
_MOMENT_S = 1.0
_FIRST_WAIT_S = 10.0


class Partitions:
    """The known nodes of each partition; old lists are refreshed in the background."""

    def __init__(self, commands: Commands, clock: Callable[[], float]) -> None:
        self._commands = commands
        self._clock = clock
        self._lock = threading.Lock()
        self._nodes: dict[str | None, list[NodeInfo]] = {}
        self._asked: dict[str | None, float] = {}
        self._asking: dict[str | None, threading.Thread] = {}
        self._offers: dict[str, tuple[list[NodeInfo], SlurmOptions, bool, list[NodeOffer]]] = {}

    def refresh(self, partition: str | None) -> None:
        """Ask now; Busy or Refused where that fails."""
        found = self._commands.nodes(partition)
        with self._lock:
            self._asked[partition] = self._clock()
            if found != self._nodes.get(partition):
                self._nodes[partition] = found

    def nodes(self, partition: str | None, wait: bool = True) -> list[NodeInfo]:
        with self._lock:
            fresh_s = _AGAIN_S if self._commands.trouble else _FRESH_S
            if self._clock() - self._asked.get(partition, float("-inf")) > fresh_s:
                self._start_asking(partition)
            asking = self._asking.get(partition)
            known = self._nodes.get(partition)
        if known is None and asking is not None and wait:
            # The very first query: there is no answer without it.
            asking.join(_FIRST_WAIT_S)
            with self._lock:
                known = self._nodes.get(partition)
        return known or []

    def ask(self, partition: str | None, patience_s: float) -> None:
        """Query Slurm, unless it answered a moment ago, and wait briefly for its answer."""
        if not self._commands.trouble and time.monotonic() - self._commands.answered_at < _MOMENT_S:
            return
        with self._lock:
            self._start_asking(partition)
            asking = self._asking[partition]
        asking.join(patience_s)
        if asking.is_alive() and not self._commands.trouble:
            self._commands.trouble = f"sinfo: no answer for {patience_s:g} s"

    def _start_asking(self, partition: str | None) -> None:
        if partition not in self._asking:
            self._asked[partition] = self._clock()
            thread = threading.Thread(target=self._renew, args=(partition,), name="sinfo", daemon=True)
            self._asking[partition] = thread
            thread.start()

    def offers(self, cluster: str, options: SlurmOptions) -> Sequence[NodeOffer]:
        """The nodes of a cluster; the same list as long as nothing has changed."""
        nodes = self.nodes(options.partition)
        with self._lock:
            made = self._offers.get(cluster)
            trouble = bool(self._commands.trouble)
            if made is None or made[0] is not nodes or made[1:3] != (options, trouble):
                offers = [_offer(node, options, trouble) for node in nodes[: options.max_nodes]]
                made = self._offers[cluster] = (nodes, options, trouble, offers)
            return made[3]

    def _renew(self, partition: str | None) -> None:
        try:
            self.refresh(partition)
        except (Busy, Refused) as error:
            log.warning("Slurm was asked about its nodes in vain: %s", error)
        finally:
            with self._lock:
                self._asking.pop(partition, None)


def _offer(node: NodeInfo, options: SlurmOptions, trouble: bool) -> NodeOffer:
    """The part of a node that a job may use."""
    state, reason = ("unknown", "Slurm does not answer") if trouble else node_state(node)
    cpus = min(options.cpus, node.cpus) if options.cpus else node.cpus
    memory = min(int(options.memory_gb * 1e9), node.memory_mb << 20) if options.memory_gb else node.memory_mb << 20
    return NodeOffer.of_machine(node.name, node.name, cpus, memory, gpus_per_node(options, node), state, reason)
