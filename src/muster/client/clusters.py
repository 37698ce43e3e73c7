"""Calls about compute targets and their nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from muster.client.calls import Group, checking, segment
from muster.wire.clusters import (
    ChangedCluster,
    ClusterChanges,
    ClusterView,
    CostBy,
    CostReport,
    DeleteMode,
    NewCluster,
    NodeChanges,
    NodeStateView,
    NodeView,
    SetupLog,
)
from muster.wire.codec import Json


class Clusters(Group):
    """Clusters, nodes, and what they cost."""

    def clusters(self) -> list[ClusterView]:
        return self._calls.read(list[ClusterView], "GET", "/clusters")

    def cluster(self, name: str) -> ClusterView:
        return self._calls.read(ClusterView, "GET", _cluster(name))

    def create_cluster(
        self, name: str, engine: str = "local", options: Mapping[str, Json] | None = None
    ) -> ChangedCluster:
        with checking():
            cluster = NewCluster(name, engine, options or {})
        return self._calls.read(ChangedCluster, "POST", "/clusters", message=cluster, again=False)

    def change_cluster(
        self,
        name: str,
        options: Mapping[str, Json] | None = None,
        state: Literal["ready", "stopped"] | None = None,
        now: bool = False,
    ) -> ChangedCluster:
        """Resize, stop or start; with `now` runs on nodes that go are queued again."""
        changes = ClusterChanges(options or {}, state, now)
        return self._calls.read(ChangedCluster, "PATCH", _cluster(name), message=changes)

    def delete_cluster(self, name: str, mode: DeleteMode = "refuse") -> None:
        """`refuse` while runs use it, `drain` once they have ended, or `now` with them."""
        self._calls.send("DELETE", _cluster(name), query={"mode": mode})

    def cordon(self, cluster: str, node: str, cordoned: bool = True, reason: str = "by hand") -> NodeView:
        """Keep new work off a node, or take it back."""
        return self._calls.read(NodeView, "PATCH", _node(cluster, node), message=NodeChanges(cordoned, reason))

    def node_history(self, cluster: str, node: str) -> list[NodeStateView]:
        """The node's states so far."""
        return self._calls.read(list[NodeStateView], "GET", _node(cluster, node) + "/history")

    def setup_log(self, cluster: str, node: str) -> str:
        """What the node's set-up command printed."""
        return self._calls.read(SetupLog, "GET", _node(cluster, node) + "/setup").log

    def cost(self, by: CostBy = "run") -> CostReport:
        """Node hours and their cost, by run, user or cluster."""
        return self._calls.read(CostReport, "GET", "/cost", query={"by": by})


def _cluster(name: str) -> str:
    return f"/clusters/{segment(name, 'cluster')}"


def _node(cluster: str, node: str) -> str:
    return f"{_cluster(cluster)}/nodes/{segment(node, 'node')}"
