"""What the server decides by the kind of a cluster's engine."""

from __future__ import annotations

from socket import AF_INET
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from muster.engines.base import Cluster, Connection
from muster.engines.registry import Engines
from muster.server.nodes import clusters
from muster.server.nodes.agents import UnusableNodes, nodes_of
from muster.server.nodes.clusters import NodeRecord, reaches, rules_of, scales, usable
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


def test_each_cluster_on_other_machines_reaches_the_server_as_it_says(context: Any):
    def reach(*rows: Any) -> dict[str, Connection]:
        return reaches(context, SimpleNamespace(execute=lambda _: rows))  # type: ignore[arg-type]

    assert reach(row("local", "local"), row("c", "broken")) == {}
    found = reach(row("a", "ray", **RAY, server_port=7), row("b", "ray", **RAY, server_port=8, server_address="me"))
    context.remote.ports = {None: 1, 7: 77, 8: 8}
    context.remote.host = "team"
    assert [context.remote.urls(found[name]) for name in "ab"] == [("https://team:77",), ("https://me:8",)]
    assert reach(row("c", "ray", **RAY, token_file="/gone")) == {"c": Connection()}, "a server starts all the same"


def test_a_server_without_a_given_address_is_reached_on_the_interface_that_routes_to_the_cluster(context: Any):
    context.remote.ports = {None: 1}
    (url,) = context.remote.urls(Connection(near=("127.0.0.1",)))
    others = [part.address for parts in psutil.net_if_addrs().values() for part in parts if part.family == AF_INET]
    outward = [address for address in others if not address.startswith("127.")]
    assert urlsplit(url).hostname in (outward or ["127.0.0.1"]), "never loopback, never a host name"
    assert context.remote.urls(Connection(server_address="fd00::1")) == ("https://[fd00::1]:1",)


@pytest.mark.parametrize(
    ("outside", "mode", "addresses"),
    [
        ({None: 1}, "auto", ("https://h:1", "file:/w/spool")),
        ({None: 1}, "tls", ("https://h:1",)),
        ({None: 1}, "files", ("file:/w/spool",)),
        ({}, "tls", ("file:/w/spool",)),
    ],
)
def test_agents_on_other_machines_try_tls_first(context: Any, outside: Any, mode: Any, addresses: tuple[str, ...]):
    context.remote.ports = outside
    assert _addresses(context, Connection(mode, "h")) == addresses
