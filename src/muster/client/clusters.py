"""Calls about compute targets and their nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from muster.client.calls import Group, checking, segment
from muster.wire import clusters as wire
from muster.wire.codec import Json


class Clusters(Group):
    """Clusters, nodes, and what they cost."""

    def clusters(self) -> list[wire.ClusterView]:
        return list(self.calls.each(wire.ClusterView, "/clusters"))

    def cluster(self, name: str) -> wire.ClusterView:
        return self.calls.read(wire.ClusterView, "GET", _cluster(name))

    def cluster_use(self, name: str, hours: float = 24.0, points: int = 96) -> wire.ClusterUse:
        """How much of a cluster was in use, as averages over equal intervals of the last hours."""
        return self.calls.read(
            wire.ClusterUse, "GET", f"{_cluster(name)}/use", query={"hours": hours, "points": points}
        )

    def create_cluster(
        self, name: str, engine: str = "local", options: Mapping[str, Json] | None = None
    ) -> wire.ChangedCluster:
        with checking():
            cluster = wire.NewCluster(name, engine, options or {})
        return self.calls.read(wire.ChangedCluster, "POST", "/clusters", message=cluster, again=False)

    def change_cluster(
        self,
        name: str,
        options: Mapping[str, Json] | None = None,
        state: Literal["ready", "stopped"] | None = None,
        now: bool = False,
    ) -> wire.ChangedCluster:
        """Resize, stop or start; with `now` runs on nodes that go are queued again."""
        changes = wire.ClusterChanges(options or {}, state, now)
        return self.calls.read(wire.ChangedCluster, "PATCH", _cluster(name), message=changes)

    def check_cluster(self, name: str) -> wire.ClusterCheck:
        """What the server can check on the way to a cluster."""
        return self.calls.read(wire.ClusterCheck, "POST", _cluster(name) + "/check")

    def delete_cluster(self, name: str, mode: wire.DeleteMode = "refuse") -> None:
        """`refuse` while runs use it, `drain` once they have ended, or `now` with them."""
        self.calls.send("DELETE", _cluster(name), query={"mode": mode})

    def cordon(self, cluster: str, node: str, cordoned: bool = True, reason: str = "by hand") -> wire.ClusterView:
        """Keep new work off a node, or take it back."""
        changes = wire.NodeChanges(cordoned, reason)
        return self.calls.read(wire.ClusterView, "PATCH", _node(cluster, node), message=changes)

    def node_history(self, cluster: str, node: str) -> list[wire.NodeStateView]:
        """The node's states so far."""
        return list(self.calls.each(wire.NodeStateView, _node(cluster, node) + "/history"))

    def setup_log(self, cluster: str, node: str) -> str:
        """What the node's set-up command printed."""
        return self.calls.read(wire.SetupLog, "GET", _node(cluster, node) + "/setup").log

    def cost(self, by: wire.CostBy = "run") -> wire.CostReport:
        """Node hours and their cost, by run, user or cluster."""
        return self.calls.read(wire.CostReport, "GET", "/cost", query={"by": by})


def _cluster(name: str) -> str:
    return f"/clusters/{segment(name, 'cluster')}"


def _node(cluster: str, node: str) -> str:
    return f"{_cluster(cluster)}/nodes/{segment(node, 'node')}"
