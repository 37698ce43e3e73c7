"""Nodes that come with an attempt, on engines with a queue of their own."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection

from muster import errors
from muster.engines.base import Allocation, Cluster, Gang, GangRequest, NodeState, QueueEngine, Scripted, TakesMany
from muster.server.context import Context
from muster.server.database.connection import Transaction
from muster.server.database.records import ATTEMPT, PLACEMENTS, RUN, record_file
from muster.server.endpoints.parts import hosts_of_others
from muster.server.nodes import queue_jobs
from muster.server.nodes.allocations import Key, allocation_id, attempt_of, node_folders, time_left_s
from muster.server.nodes.clusters import Held
from muster.server.nodes.configs import write_config
from muster.wire import states
from muster.wire.clusters import NodeView

SCRIPT = "logs/submitted.sh"


@dataclass(frozen=True)
class QueuedNodes:
    """The nodes of one cluster."""

    context: Context
    cluster: Cluster
    engine: QueueEngine

    def start(self, nodes: Sequence[str]) -> None:
        """Submit the gangs of these nodes to the queue, each as a whole."""
        keys = sorted({attempt_of(node) for node in nodes})
        requests = self.context.database.read_now(
            lambda c: [self._request(c, key) for key in keys if _wants_nodes(c, key)]
        )
        scripts = {request.id: script for request in requests if (script := self._script(request)) is not None}
        if len(requests) > 1 and isinstance(self.engine, TakesMany):
            scripts |= self.engine.submit_many(requests)
            self._keep(requests, scripts)
            return
        self._keep(requests, scripts)
        for request in requests:
            self.engine.submit(request)

    def poll(self, nodes: Sequence[str]) -> Mapping[str, NodeState]:
        by_attempt: dict[Key, list[str]] = defaultdict(list)
        for node in nodes:
            by_attempt[attempt_of(node)].append(node)
        allocations = {
            key: Allocation(
                allocation_id(self.context, key), self.cluster, {name: self.context.paths.node(name) for name in names}
            )
            for key, names in by_attempt.items()
        }
        polled = self.engine.poll(list(allocations.values()))
        found: dict[str, NodeState] = {}
        for key, allocation in allocations.items():
            state = self.context.nodes.allocations[key] = polled[allocation.id]
            found |= {node: NodeState(life, state.reason) for node, life in state.nodes.items()}
            for node in state.nodes:
                if node in state.unreached:
                    self.context.nodes.unreached[node] = state.unreached[node]
                else:
                    self.context.nodes.unreached.pop(node, None)
        jobs = {key: self.engine.job(allocation) for key, allocation in allocations.items()}
        queue_jobs.keep(self.context, {key: job for key, job in jobs.items() if job is not None})
        return found

    def views(self, connection: Connection, held: Sequence[Held]) -> list[NodeView]:
        """The machines, as their own manager reports them."""
        return [
            NodeView(
                name=offer.name,
                state=offer.state,
                reason=offer.reason,
                since=None,
                cordoned=None,
                strikes=0,
                runs=tuple(row.run_id for row in held if row.host == offer.host),
                host=offer.host,
                pid=None,
                address=offer.address,
                cpus=offer.cpus,
                memory_bytes=offer.memory_bytes,
                gpus=offer.gpus,
            )
            for offer in self.engine.nodes(self.cluster)
        ]

    def _request(self, connection: Connection, key: Key) -> GangRequest:
        """The request for all nodes of an attempt, with what the engine must know of the gang."""
        context, cluster = self.context, self.cluster
        run = connection.execute(RUN.select, {"key_id": key[0]}).one()
        folders = node_folders(context, key, range(run.num_nodes))
        reach = context.remote.resolved(self.engine.connection(cluster))
        gang = Gang(
            *key,
            title=run.display_name or run.id,
            folder=str(context.paths.handed_on),
            ranks_per_node=max(1, run.ranks_per_node),
            gpus_per_node=run.gpus_per_node,
            gpu_share=run.gpu_share or 1.0,
            time_limit_s=time_left_s(connection, run.id, run.timeout_s, run.budget_from),
            priority=run.priority,
            excluded=(*(run.excluded_nodes or ()), *hosts_of_others(connection, run.id)),
        )
        agents = [
            write_config(context, cluster, name, reach, address="", linger_s=reach.linger_s, long_lived=False)
            for name in folders
        ]
        return GangRequest(allocation_id(context, key), cluster, folders, gang, tuple(agents))

    def _script(self, request: GangRequest) -> str | None:
        """What is submitted for one gang."""
        if not isinstance(self.engine, Scripted):
            return None
        try:
            return self.engine.script(request)
        except errors.JobError:
            # An invalid request has no script; the engine reports it on submission.
            return None

    def _keep(self, requests: Sequence[GangRequest], scripts: Mapping[str, str]) -> None:
        """Keep what is submitted among the runs' files, where people look."""
        kept = [(request.gang, scripts[request.id].encode()) for request in requests if request.id in scripts]
        for gang, data in kept:
            self.context.files.store.put(f"runs/{gang.run}/attempts/{gang.attempt}/{SCRIPT}", [data])
        if kept:
            self.context.database.submit(partial(_record_scripts, kept=kept)).result()


def _record_scripts(transaction: Transaction, kept: Sequence[tuple[Gang, bytes]]) -> None:
    for gang, data in kept:
        digest = hashlib.sha256(data).hexdigest()
        record_file(transaction, gang.run, gang.attempt, 0, SCRIPT, len(data), digest)


def _wants_nodes(connection: Connection, key: Key) -> bool:
    """Whether an attempt has yet to begin; one that has lost its nodes is over, and is not requested again."""
    attempt = connection.execute(ATTEMPT.select, {"key_run_id": key[0], "key_number": key[1]}).first()
    placements = connection.execute(PLACEMENTS.select, {"key_run_id": key[0], "key_number": key[1]})
    if attempt is None or attempt.ended_at is not None or attempt.stop_reason or attempt.ending:
        return False
    return all(row.phase == states.ORDERED for row in placements)
