"""The pure parts of the engine `ray`: names of nodes, admission, what Ray says in plain words, settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster import errors
from muster.clusters.options import parse_options
from muster.defaults import RAY_LINGER_S
from muster.engines.base import Cluster, Gang, GangRequest
from muster.engines.ray import explanations
from muster.engines.ray.admission import QueuedGang, next_gangs
from muster.engines.ray.cluster import RayNode, fits, read_nodes
from muster.engines.ray.engine import RayEngine, bundle_for
from muster.engines.ray.leash import Contact
from muster.engines.ray.options import RayOptions
from muster.paths import NodePaths

MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.49.1
    Python: 3.10.14
This process on Ray Client was started with:
    Ray: 2.60.0
    Python: 3.11.2
"""


def row(number: int, host: str = "", name: str = "", alive: bool = True, **has: float) -> dict[str, object]:
    address = f"10.0.0.{number}"
    return {
        "NodeID": f"id{number}",
        "NodeName": name or address,
        "NodeManagerHostname": host,
        "NodeManagerAddress": address,
        "Alive": alive,
        "Resources": {"CPU": 4.0, "memory": 8e9, **has},
        "Labels": {"kind": "a"},
    }


def node(cpus: int = 4, gpus: int = 0) -> RayNode:
    return RayNode("id", "n", "10.0.0.1", True, cpus, 8 << 30, gpus, labels={"kind": "a"})


def test_nodes_are_called_by_their_own_name_else_their_hosts_else_their_address():
    rows = [row(1, "same"), row(2, "same"), row(3, "alone"), row(4, "same", name="given")]
    assert {item.id: item.name for item in read_nodes(rows)} == {
        "id1": "10.0.0.1", "id2": "10.0.0.2", "id3": "alone", "id4": "given",
    }  # fmt: skip


def test_the_head_comes_first_and_the_dead_come_last():
    rows = [row(1, "a", alive=False), row(2, "b"), {**row(3, "c"), "Resources": {"node:__internal_head__": 1.0}}]
    found = read_nodes(rows, draining=["id2"])
    assert [(item.name, item.alive, item.head, item.draining) for item in found] == [
        ("c", True, True, False), ("b", True, False, True), ("10.0.0.1", False, False, False),
    ]  # fmt: skip


def test_a_node_fits_by_labels_and_size():
    assert fits(node(), {"kind": "a"}, {"CPU": 4})
    assert not fits(node(), {"kind": "b"}, {"CPU": 1})
    assert not fits(node(), {}, {"CPU": 5})
    assert not fits(node(), {}, {"GPU": 1})


def queued(name: str, num_nodes: int, priority: int = 1, since: float = 0.0, **state: bool) -> QueuedGang:
    folders = {f"{name}.{rank}": NodePaths(Path(name)) for rank in range(num_nodes)}
    request = GangRequest(name, Cluster("c", "ray"), folders, Gang(name, 1, name, "/w", priority=priority))
    return QueuedGang(request, since, **state)


def admitted(gangs: list[QueuedGang], most_nodes: int) -> list[str]:
    return [gang.request.id for gang in next_gangs(gangs, most_nodes)]


def test_gangs_are_asked_for_in_order_as_far_as_machines_go():
    waiting = [queued("late", 1, 1, 3.0), queued("first", 2, 1, 1.0), queued("urgent", 1, 2, 9.0)]
    assert admitted(waiting, 3) == ["urgent", "first"]
    assert admitted(waiting, 4) == ["urgent", "first", "late"]


def test_a_large_gang_is_not_overtaken_by_small_ones():
    before = [queued("waits", 1, asked=True), queued("runs", 1, asked=True, placed=True)]
    assert admitted([*before, queued("large", 3, 1, 1.0), queued("small", 1, 1, 2.0)], 4) == []


def test_the_first_in_line_may_share_machines_that_others_hold():
    running = [queued(name, 1, asked=True, placed=True) for name in ("a", "b")]
    assert admitted([*running, queued("one", 1, 1, 1.0), queued("two", 1, 1, 2.0)], 2) == ["one"]


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2), st.floats(0, 100)), max_size=20),
    st.lists(st.integers(1, 6), max_size=4),
    st.integers(1, 12),
)
def test_what_waits_in_ray_never_exceeds_the_cluster_but_for_the_first(wanted, placed, most):
    waiting = [queued(str(number), *item) for number, item in enumerate(wanted)]
    running = [queued(f"r{number}", size, asked=True, placed=True) for number, size in enumerate(placed)]
    chosen = next_gangs([*running, *waiting], most)
    assert len(chosen) >= min(1, len(waiting))
    if len(chosen) > 1:
        assert sum(gang.num_nodes for gang in chosen) + sum(placed) <= most


def test_other_versions_are_told_with_what_to_change():
    error = explanations.why_not_attached("ray://h:10001", MISMATCH, "RuntimeError", "/opt/python")
    assert "the cluster has Ray 2.49.1 on Python 3.10.14; /opt/python has Ray 2.60.0 on Python 3.11.2" in error.message
    assert "Set `python` of this cluster to one with Python 3.10.14 and ray==2.49.1" in str(error.hint)


def test_another_muster_on_the_nodes_is_told_with_what_to_change():
    assert "Install muster-ml==2 on the nodes" in str(explanations.other_muster("1", "2").hint)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("ModuleNotFoundError: No module named 'ray'", "has no ray"),
        ("ModuleNotFoundError: No module named 'muster'", "Muster is not installed"),
        ("ConnectionError: ray client connection timeout", "cannot be attached to: ConnectionError"),
    ],
)
def test_what_stands_in_the_way_is_named(said: str, meant: str):
    assert meant in explanations.why_not_attached("ray://h:10001", said, "X", "/opt/python").message


def test_an_address_is_needed():
    with pytest.raises(errors.JobError, match="needs the address of its head"):
        RayOptions.parse({})


def test_a_token_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(errors.JobError, match="token_file"):
        RayOptions.parse({"address": "ray://h:1", "token_file": str(tmp_path / "none")})


def test_a_setting_that_ray_clusters_do_not_have_is_refused_with_the_nearest():
    with pytest.raises(errors.JobError, match="has no setting 'adress'") as refused:
        RayOptions.refuse_unknown({"adress": "x"})
    assert "address" in str(refused.value.hint)


def test_the_token_and_certificates_are_told_by_their_places(tmp_path: Path):
    for name in ("token", "ca", "crt", "key"):
        (tmp_path / name).write_text("x")
    files = {key: str(tmp_path / name) for key, name in
             (("token_file", "token"), ("tls_ca", "ca"), ("tls_cert", "crt"), ("tls_key", "key"))}  # fmt: skip
    environment = RayOptions.parse({"address": "ray://h:1", **files}).environment()
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["RAY_AUTH_TOKEN_PATH"] == files["token_file"]
    assert environment["RAY_USE_TLS"] == "1"


def test_a_bundle_takes_a_cpu_for_each_rank_as_far_as_there_are_and_all_gpus_unless_told():
    common = parse_options({})
    assert bundle_for(2, None, common, [node(4)]) == {"CPU": 2.0}
    assert bundle_for(9, None, common, [node(4)]) == {"CPU": 4.0}
    assert bundle_for(1, None, common, [node(4, 8)]) == {"CPU": 1.0, "GPU": 8.0}
    assert bundle_for(1, 2, common, [node(4, 8)]) == {"CPU": 1.0, "GPU": 2.0}
    assert bundle_for(1, 0, common, [node(4, 8)]) == {"CPU": 1.0}


def test_a_cluster_without_machines_yet_asks_by_its_size():
    common = parse_options({"vm_size": "Standard_NC6s_v3"})
    assert bundle_for(1, None, common, [])["GPU"] == 1.0


def test_a_node_is_cut_off_only_after_nobody_was_reached_for_a_while():
    contact = Contact(10.0, last=0.0)
    assert not contact.cut_off(9.0, reached=False)
    assert not contact.cut_off(12.0, reached=True)
    assert not contact.cut_off(21.0, reached=False)
    assert contact.cut_off(22.5, reached=False)


def test_what_a_cluster_on_ray_does_not_say_has_the_documented_defaults():
    connection = RayEngine().connection(Cluster("c", "ray", {"address": "ray://h:1", "server_port": 7}))
    assert (connection.mode, connection.server_address, connection.server_port) == ("tls", None, 7)
    assert connection.linger_s == RAY_LINGER_S


def test_custom_resources_are_read_and_a_node_without_them_does_not_fit():
    row = {"NodeID": "a", "NodeManagerAddress": "10.0.0.1", "Alive": True}
    has = {"CPU": 4.0, "GPU": 1.0, "memory": 8.0, "object_store_memory": 2.0, "node:10.0.0.1": 1.0, "fast_disk": 2.0}
    with_disk, without = read_nodes([{**row, "Resources": has}])[0], node(4, 1)
    assert with_disk.resources == {"fast_disk": 2.0}
    assert fits(with_disk, {}, {"CPU": 1.0, "fast_disk": 2.0, "GPU": 0.5})
    assert not fits(with_disk, {}, {"fast_disk": 3.0})
    assert not fits(without, {}, {"fast_disk": 1.0})


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"resources": {"GPU": 1}}, "GPU is no custom resource"),
        ({"resources": {"disk": 0}}, "resources.disk"),
        ({"gpu_share": 1.5}, "gpu_share"),
    ],
)
def test_what_is_no_custom_resource_or_share_is_refused(options: dict[str, object], why: str):
    with pytest.raises(errors.JobError, match=why):
        RayOptions.parse({"address": "ray://h:10001", **options})
