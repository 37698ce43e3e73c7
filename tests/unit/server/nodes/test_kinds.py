"""What the server decides by the kind of a cluster's engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from muster.engines.base import Cluster, Connection
from muster.engines.registry import Engines
from muster.server.nodes import clusters
from muster.server.nodes.agents import UnusableNodes, nodes_of
from muster.server.nodes.clusters import NodeRecord, reach_of_remote_clusters, rules_of, scales, usable
from muster.server.nodes.configs import _addresses
from muster.server.nodes.owned import OwnedNodes
from muster.server.nodes.queued import QueuedNodes
from muster.server.nodes.state import NodesState, RemoteAccess

RAY = {"address": "ray://h:10001"}


@pytest.fixture
def context() -> Any:
    engines = Engines({"fake": "muster.testing.engine:FakeEngine", "broken": "nowhere_to_be_found:Engine"})
    nodes, paths = NodesState(engines, ()), SimpleNamespace(spool="/w/spool")
    return SimpleNamespace(nodes=nodes, remote=RemoteAccess(), paths=paths)


def row(name: str, engine: str, **options: Any) -> Any:
    return SimpleNamespace(name=name, engine=engine, options=options, state=clusters.READY)


def record(name: str, state: str, cordoned: str | None = None) -> NodeRecord:
    return NodeRecord("c", name, state, "", 0.0, cordoned, 0)


@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        ("local", OwnedNodes),
        ("fake", OwnedNodes),
        ("slurm", QueuedNodes),
        ("ray", QueuedNodes),
        ("broken", UnusableNodes),
    ],
)
def test_the_kind_of_an_engine_decides_who_looks_after_the_nodes(context: Any, engine: str, kind: type):
    assert isinstance(nodes_of(context, Cluster("c", engine, {})), kind)


def test_nodes_come_before_jobs_only_in_clusters_of_a_users_own(context: Any):
    assert scales(context, Cluster("mine", "local"))
    assert not scales(context, Cluster("local", "local"))
    assert not any(scales(context, Cluster("c", engine)) for engine in ("fake", "slurm", "ray", "broken"))


def test_a_node_takes_gangs_once_it_is_there_and_unless_it_is_cordoned(context: Any):
    mine = Cluster("c", "local", {"max_nodes": 4, "cpus": 1})
    known = {
        "c-0": record("c-0", clusters.IDLE),
        "c-1": record("c-1", clusters.PREPARING),
        "c-2": record("c-2", clusters.RUNNING, cordoned="by hand"),
    }
    assert [node.name for node in usable(context, mine, known)] == ["c-0"]
    whole = Cluster("local", "local", {})
    assert len(usable(context, whole, {})) == len(clusters.offered(context, whole))


def test_a_cluster_whose_engine_is_broken_waits_with_the_reason_and_gives_nobody_up(context: Any):
    broken = Cluster("c", "broken", {})
    assert usable(context, broken, {}) == []
    assert "cannot be used: ModuleNotFoundError" in rules_of(context, row("c", "broken"), {}, 0).closed
    lives = nodes_of(context, broken).poll(["c-0"])
    assert lives["c-0"].life == "starting" and "cannot be used" in lives["c-0"].reason


def test_the_server_listens_as_the_first_cluster_on_other_machines_says(context: Any):
    def reach(*rows: Any) -> Connection | None:
        return reach_of_remote_clusters(context, SimpleNamespace(execute=lambda _: rows))  # type: ignore[arg-type]

    assert reach(row("local", "local"), row("c", "broken")) is None
    found = reach(row("a", "slurm", server_port=7), row("b", "ray", **RAY, server_port=8, server_address="head"))
    assert found is not None and (found.server_address, found.server_port) == ("head", 7)
    assert reach(row("c", "ray", **RAY, token_file="/gone")) == Connection(), "a server starts all the same"


@pytest.mark.parametrize(
    ("outside", "mode", "addresses"),
    [
        (("https://h:1",), "auto", ("https://h:1", "file:/w/spool")),
        (("https://h:1",), "tls", ("https://h:1",)),
        (("https://h:1",), "files", ("file:/w/spool",)),
        ((), "tls", ("file:/w/spool",)),
    ],
)
def test_agents_on_other_machines_try_tls_first(context: Any, outside: Any, mode: Any, addresses: tuple[str, ...]):
    context.remote.addresses = outside
    assert _addresses(context, Connection(mode)) == addresses
