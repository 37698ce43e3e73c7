"""The Slurm of this machine, and those of login nodes that are reached over ssh: each has its own engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from muster.engines.base import (
    Allocation,
    AllocationState,
    Cluster,
    Connection,
    GangRequest,
    NodeOffer,
    QueueEngine,
)
from muster.engines.slurm.commands import Commands
from muster.engines.slurm.engine import SlurmEngine
from muster.wire.queue_jobs import JobUsage, QueueJob


class SlurmSites(QueueEngine):
    """Passes each cluster to the engine of its site."""

    name = "slurm"

    def __init__(self, make: Callable[[str | None], SlurmEngine] | None = None) -> None:
        self._make = make or (lambda host: SlurmEngine(Commands(ssh=host)))
        self._lock = threading.Lock()
        self._sites: dict[str | None, SlurmEngine] = {}

    def check(self, cluster: Cluster) -> list[str]:
        return self.of(cluster).check(cluster)

    def nodes(self, cluster: Cluster) -> Sequence[NodeOffer]:
        return self.of(cluster).nodes(cluster)

    def trouble(self, cluster: Cluster, patience_s: float = 0.0) -> str:
        return self.of(cluster).trouble(cluster, patience_s)

    def about(self, cluster: Cluster) -> str:
        return self.of(cluster).about(cluster)

    def connection(self, cluster: Cluster) -> Connection:
        return self.of(cluster).connection(cluster)

    def script(self, request: GangRequest) -> str:
        return self.of(request.cluster).script(request)

    def submit(self, request: GangRequest) -> None:
        self.of(request.cluster).submit(request)

    def submit_many(self, requests: Sequence[GangRequest]) -> Mapping[str, str]:
        return self.of(requests[0].cluster).submit_many(requests)

    def poll(self, allocations: Sequence[Allocation]) -> Mapping[str, AllocationState]:
        by_host: dict[str | None, list[Allocation]] = {}
        for item in allocations:
            by_host.setdefault(_host(item.cluster), []).append(item)
        found: dict[str, AllocationState] = {}
        for items in by_host.values():
            found |= self.of(items[0].cluster).poll(items)
        return found

    def job(self, allocation: Allocation) -> QueueJob | None:
        return self.of(allocation.cluster).job(allocation)

    def usage(self, cluster: Cluster, jobs: Sequence[str]) -> Mapping[str, JobUsage] | str:
        return self.of(cluster).usage(cluster, jobs)

    def release(self, allocation: Allocation, followed: bool) -> None:
        self.of(allocation.cluster).release(allocation, followed)

    def close(self) -> None:
        with self._lock:
            sites = list(self._sites.values())
        for site in sites:
            site.close()

    def of(self, cluster: Cluster) -> SlurmEngine:
        """The engine of a cluster's site."""
        host = _host(cluster)
        with self._lock:
            if host not in self._sites:
                self._sites[host] = self._make(host)
            return self._sites[host]


def _host(cluster: Cluster) -> str | None:
    value = cluster.options.get("ssh")
    return str(value) if value else None
