"""The nodes of partitions: asked for now and then, answered at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from muster.engines.base import NodeOffer
from muster.engines.slurm.commands import Busy, Commands, Refused
from muster.engines.slurm.explanations import node_state
from muster.engines.slurm.options import SlurmOptions
from muster.engines.slurm.parsing import NodeInfo
from muster.engines.slurm.script import gpus_per_node

log = logging.getLogger("muster.server")

_FRESH_S = 30.0
_FIRST_WAIT_S = 10.0


class Partitions:
    """What is known of each partition's nodes; old knowledge is renewed in the background."""

    def __init__(self, commands: Commands, clock: Callable[[], float]) -> None:
        self._commands = commands
        self._clock = clock
        self._lock = threading.Lock()
        self._nodes: dict[str | None, list[NodeInfo]] = {}
        self._asked: dict[str | None, float] = {}
        self._asking: dict[str | None, threading.Thread] = {}
        self._offers: dict[str, tuple[list[NodeInfo], SlurmOptions, list[NodeOffer]]] = {}

    def refresh(self, partition: str | None) -> None:
        """Ask now; Busy or Refused where that fails."""
        found = self._commands.nodes(partition)
        with self._lock:
            self._asked[partition] = self._clock()
            if found != self._nodes.get(partition):
                self._nodes[partition] = found

    def nodes(self, partition: str | None) -> list[NodeInfo]:
        with self._lock:
            old = self._clock() - self._asked.get(partition, float("-inf")) > _FRESH_S
            if old and partition not in self._asking:
                self._asked[partition] = self._clock()
                thread = threading.Thread(target=self._renew, args=(partition,), name="sinfo", daemon=True)
                self._asking[partition] = thread
                thread.start()
            asking = self._asking.get(partition)
            known = self._nodes.get(partition)
        if known is None and asking is not None:
            # The first time of all: nothing can be said without an answer.
            asking.join(_FIRST_WAIT_S)
            with self._lock:
                known = self._nodes.get(partition)
        return known or []

    def offers(self, cluster: str, options: SlurmOptions) -> Sequence[NodeOffer]:
        """The nodes of a cluster; the same list as long as nothing has changed."""
        nodes = self.nodes(options.partition)
        with self._lock:
            made = self._offers.get(cluster)
            if made is None or made[0] is not nodes or made[1] != options:
                made = (nodes, options, [_offer(node, options) for node in nodes[: options.max_nodes]])
                self._offers[cluster] = made
            return made[2]

    def _renew(self, partition: str | None) -> None:
        try:
            self.refresh(partition)
        except (Busy, Refused) as error:
            log.warning("Slurm was asked about its nodes in vain: %s", error)
        finally:
            with self._lock:
                self._asking.pop(partition, None)


def _offer(node: NodeInfo, options: SlurmOptions) -> NodeOffer:
    state, reason = node_state(node)
    num_gpus = gpus_per_node(options, node)
    return NodeOffer.of_machine(node.name, node.name, node.cpus, node.memory_mb << 20, num_gpus, state, reason)
