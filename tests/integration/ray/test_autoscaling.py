"""Machines come and go for real: Ray's own autoscaler, with its provider for one machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conftest import wait_until
from tests.integration.ray.conftest import PATIENCE_S, attached, started
from tests.integration.server.conftest import Site
from tests.sites.ray import FAKE_HEAD_ID, RaySite, missing

from muster.clusters.options import parse_options
from muster.engines.ray.machines.launcher import WORKERS, Described, labels_of, make_file

DESCRIBED = {"max_nodes": 2, "cpus": 1, "idle_seconds_before_scaledown": 5}
HEAD = "ray.head.default"


def autoscaling() -> dict[str, object]:
    """The file that Muster writes for a cluster, with the machines of a cloud replaced by processes of this one."""
    made = make_file(Described("grow", parse_options(DESCRIBED), "aws"))
    workers = {**made["available_node_types"][WORKERS], "node_config": {}}
    workers["resources"] = {**workers["resources"], "object_store_memory": 80_000_000}
    return {
        **{key: made[key] for key in ("cluster_name", "max_workers", "upscaling_speed", "idle_timeout_minutes")},
        "provider": {
            "type": "fake_multinode",
            "head_node_id": FAKE_HEAD_ID,
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        "auth": {},
        "available_node_types": {
            HEAD: {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            WORKERS: workers,
        },
        "head_node_type": HEAD,
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
        "initialization_commands": [],
        "setup_commands": [],
        "head_setup_commands": [],
        "worker_setup_commands": [],
        "head_start_ray_commands": [],
        "worker_start_ray_commands": [],
    }


@pytest.fixture
def growing(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    folder = tmp_path_factory.mktemp("grow")
    monkeypatch.chdir(folder)
    with started(RaySite(hosts=1, cpus=0, autoscaling=autoscaling(), secured=False)) as ray:
        options = {**ray.options, **DESCRIBED, "labels": labels_of("grow")}
        with attached(ray, folder, "grow", options) as (site, notices):
            assert any("attached to without a token" in text for text in notices)
            yield site


def test_a_cluster_grows_from_nothing_for_a_gang_and_shrinks_to_nothing_after_it(growing: Site):
    site = growing

    def machines() -> int:
        return sum(node.state == "idle" for node in site.client.cluster("grow").nodes)

    assert [node.state for node in site.client.cluster("grow").nodes] == ["away", "away"]
    job = {"type": "pytorch", "process_count_per_instance": 1}
    run_id = site.run(
        command="echo $RANK of $WORLD_SIZE", compute="grow", resources={"instance_count": 2}, distribution=job
    )
    wait_until(lambda: "waits until Ray has 2 nodes" in (site.view(run_id)["reason"] or ""), 30, "the reason")
    view = site.wait(run_id, timeout_s=PATIENCE_S)
    assert view["status"] == "Completed", view["verdict"]
    printed = [site.log(run_id, rank["log"]) for rank in view["attempts"][0]["ranks"]]
    assert printed == [b"0 of 2\n", b"1 of 2\n"]
    assert len({rank["node"] for rank in view["attempts"][0]["ranks"]}) == 2
    wait_until(lambda: machines() == 0, PATIENCE_S, "the end of idle machines")
