"""What survives which death on a real Ray cluster: daemons, networks, the head, the broker, the server."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from tests.conftest import wait_until
from tests.integration.ray.conftest import PATIENCE_S
from tests.integration.server.conftest import Site
from tests.sites.ray import RaySite

import muster
from muster.version import VERSION
from muster.wire.clusters import ClusterView

SOURCE = Path(muster.__file__).parent
GANG = {"distribution": {"type": "pytorch", "process_count_per_instance": 1}, "resources": {"instance_count": 2}}

# The first attempt trains until somebody ends it; each step is reduced over the nodes and saved. Later ones go on.
TRAIN = """
import os, pathlib, sys, time
import torch
import torch.distributed as dist

place, rank, attempt = pathlib.Path(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["MUSTER_ATTEMPT"])
resume = os.environ.get("MUSTER_RESUME_DIR")
step = int(pathlib.Path(resume, "step").read_text()) if resume else 0
print("attempt", attempt, "from", step, flush=True)
dist.init_process_group("gloo")
for step in range(step + 1, 100_000):
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        part = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"], f"tmp-{step}")
        part.mkdir()
        (part / "step").write_text(str(step))
        part.rename(part.with_name(str(step)))
    (place / f"up.{attempt}.{rank}").write_text(str(os.getpid()))
    if attempt > 1 or (place / "finish").exists():
        break
    time.sleep(0.2)
dist.barrier()
print("done", flush=True)
"""

# Takes no notice of signals, and goes on saving where nobody can see it.
STUBBORN = """
import os, pathlib, signal, sys, time
place, rank, attempt = pathlib.Path(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["MUSTER_ATTEMPT"])
print("attempt", attempt, flush=True)
if attempt > 1:
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
(place / f"up.{attempt}.{rank}").write_text(str(os.getpid()))
while not (place / "late").exists():
    time.sleep(0.1)
part = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"], "tmp-late")
part.mkdir()
(part / "step").write_text("late")
part.rename(part.with_name("late"))
time.sleep(600)
"""


def test_a_host_whose_ray_is_killed_is_named_and_the_run_goes_on_elsewhere(site: Site, ray: RaySite, workplace: Path):
    with training(site, workplace) as run_id:
        victim = other_than_head(site, ray, run_id)
        ranks = ranks_of(workplace)
        ray.raylet(victim).kill()
        view = site.wait(run_id, timeout_s=PATIENCE_S)
    assert_went_on(site, view, "node_lost", victim)
    wait_until(lambda: not any(map(lives, ranks)), 30, "the end of the first attempt's ranks")


def test_a_host_that_was_cut_off_publishes_nothing_and_is_stopped(site: Site, ray: RaySite, workplace: Path):
    (site.folder / "stubborn.py").write_text(STUBBORN)
    run_id = site.run(
        command=f"exec python stubborn.py {workplace}", code=".", compute="many", retry={"backoff_s": 0}, **GANG
    )
    wait_until(lambda: len(list(workplace.glob("up.1.*"))) == 2, PATIENCE_S, "the ranks")
    victim = other_than_head(site, ray, run_id)
    ranks = ranks_of(workplace)
    with spoiled(ray, victim):
        ray.cut(victim)
        wait_until(lambda: len(site.view(run_id)["attempts"]) == 2, PATIENCE_S, "the second attempt")
        (workplace / "late").touch()
        view = site.wait(run_id, timeout_s=PATIENCE_S)
        wait_until(lambda: not any(map(lives, ranks)), 60, "the end of the ranks that were cut off")
        ray.heal(victim)
        # Back on the network it delivers what was printed, and nothing of it is taken for a checkpoint.
        wait_until(lambda: "muster" not in str(list(ray.running(victim).values())), 60, "the end")
    assert view["status"] == "Completed", view["verdict"]
    first = view["attempts"][0]["verdict"]
    assert (first["code"], first["node"]) == ("node_lost", victim)
    assert victim not in {rank["node"] for rank in view["attempts"][1]["ranks"]}
    assert [item for item in site.view(run_id)["checkpoints"] if item["attempt"] == 1] == []


def test_a_server_that_is_killed_finds_its_gang_again(site: Site, ray: RaySite, workplace: Path):
    with training(site, workplace) as run_id:
        ranks = ranks_of(workplace)
        site.server().kill()
        (workplace / "finish").touch()
        view = site.wait(run_id, timeout_s=PATIENCE_S)
    assert view["status"] == "Completed", view["verdict"]
    assert len(view["attempts"]) == 1
    assert all(site.log(run_id, rank["log"]).endswith(b"done\n") for rank in view["attempts"][0]["ranks"])
    wait_until(lambda: not any(map(lives, ranks)), 30, "the end of the ranks")


def test_a_broker_that_is_killed_is_restarted_and_knows_its_gangs(site: Site, ray: RaySite, workplace: Path):
    with training(site, workplace) as run_id:
        ray.broker().kill()
        (workplace / "finish").touch()
        view = site.wait(run_id, timeout_s=PATIENCE_S)
    assert view["status"] == "Completed", view["verdict"]
    assert len(view["attempts"]) == 1


def test_a_node_that_ray_takes_back_requeues_the_run(site: Site, ray: RaySite, workplace: Path):
    with training(site, workplace) as run_id:
        victim = other_than_head(site, ray, run_id)
        with spoiled(ray, victim):
            ray.drain(victim)
            view = site.wait(run_id, timeout_s=PATIENCE_S)
    assert_went_on(site, view, "preempted", None)
    assert victim in view["attempts"][0]["verdict"]["message"]


def test_a_head_that_is_killed_ends_the_attempt_and_the_run_waits_for_the_next_head(
    site: Site, ray: RaySite, workplace: Path
):
    with training(site, workplace) as run_id:
        ranks = ranks_of(workplace)
        ray.kill_ray(ray.hosts[0])
        wait_until(lambda: site.view(run_id)["attempts"][0]["verdict"], PATIENCE_S, "the first verdict")
        wait_until(lambda: "Ray does not answer" in (site.view(run_id)["reason"] or ""), PATIENCE_S, "the reason")
        ray.revive()
        view = site.wait(run_id, timeout_s=PATIENCE_S)
    assert_went_on(site, view, "node_lost", None)
    assert view["attempts"][0]["verdict"]["node"] in ray.hosts
    wait_until(lambda: not any(map(lives, ranks)), 30, "the end of the first attempt's ranks")


def test_a_head_that_comes_back_at_once_holds_nothing_for_the_attempt_that_it_lost(
    site: Site, ray: RaySite, workplace: Path
):
    with training(site, workplace) as run_id:
        ray.kill_ray(ray.hosts[0])
        ray.revive()
        # All CPUs of all hosts: it has to wait for whatever still holds some.
        wide = {
            "resources": {"instance_count": 3},
            "distribution": {**GANG["distribution"], "process_count_per_instance": 2},
        }
        other = site.run(command="true", compute="many", **wide)
        views = [site.wait(item, timeout_s=PATIENCE_S) for item in (run_id, other)]
    assert [view["status"] for view in views] == ["Completed", "Completed"], [view["verdict"] for view in views]
    assert_went_on(site, views[0], "node_lost", None)
    assert len(views[1]["attempts"]) == 1


def test_a_head_that_is_replaced_while_idle_is_attached_to_again_once_it_has_the_right_versions(
    site: Site, ray: RaySite, tmp_path: Path
):
    shutil.copytree(SOURCE, tmp_path / "muster", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "muster" / "version.py").write_text('VERSION = "0.0.1"\n')
    assert site.client.cluster("many").state == "ready"
    for host in ray.hosts:
        ray.kill_ray(host)
    away = wait_until(lambda: _if(site, lambda view: view.state == "unreachable"), PATIENCE_S, "the word of its loss")
    assert "Ray does not answer" in away.reason
    assert {node.state for node in away.nodes} <= {"unknown", "away"}
    waiting = site.run(command="true", compute="many", **GANG)
    ray.start_ray(ray.hosts[0], python_path=str(tmp_path))
    said = f"the Ray cluster's nodes have Muster 0.0.1, the server has {VERSION}"
    wait_until(lambda: _if(site, lambda view: said in view.reason), PATIENCE_S, "the other version")
    ray.kill_ray(ray.hosts[0])
    ray.revive()
    assert site.wait(waiting, timeout_s=PATIENCE_S)["status"] == "Completed"
    back = wait_until(
        lambda: _if(site, lambda view: [node.state for node in view.nodes] == ["idle"] * 3), 30, "its nodes"
    )
    assert (back.state, back.reason) == ("ready", "")


def test_without_an_address_nodes_are_given_the_servers_on_their_network(site: Site, ray: RaySite):
    options = {key: value for key, value in ray.options.items() if key != "server_address"}
    site.client.create_cluster("plain", "ray", options)
    view = site.wait(site.run(command="true", compute="plain"), timeout_s=PATIENCE_S)
    assert view["status"] == "Completed", view["verdict"]
    site.client.create_cluster("astray", "ray", {**options, "server_address": "::1"})
    view = site.wait(site.run(command="true", compute="astray"), timeout_s=PATIENCE_S)
    assert (view["verdict"]["code"], len(view["attempts"])) == ("bad_input", 1), view["verdict"]
    assert view["verdict"]["node"] in ray.hosts
    assert "cannot reach the server: https://[::1]:" in view["verdict"]["message"]


def _if(site: Site, holds: Callable[[ClusterView], bool]) -> ClusterView | None:
    """The cluster, once that holds of it."""
    view = site.client.cluster("many")
    return view if holds(view) else None


@contextmanager
def spoiled(ray: RaySite, host: str) -> Iterator[None]:
    """Whatever becomes of the test, what is left of Ray on that host is of no use to the next one."""
    try:
        yield
    finally:
        ray.heal(host)
        ray.kill_ray(host)


@contextmanager
def training(site: Site, workplace: Path) -> Iterator[str]:
    """A run of two nodes that has published a checkpoint."""
    (site.folder / "train.py").write_text(TRAIN)
    run_id = site.run(
        command=f"exec python train.py {workplace}",
        code=".",
        compute="many",
        retry={"backoff_s": 0},
        environment_variables={"OMP_NUM_THREADS": "1"},
        **GANG,
    )
    wait_until(lambda: len(list(workplace.glob("up.1.*"))) == 2, PATIENCE_S, "the first step of both ranks")
    wait_until(lambda: site.view(run_id)["checkpoints"], PATIENCE_S, "a published checkpoint")
    yield run_id


def other_than_head(site: Site, ray: RaySite, run_id: str) -> str:
    nodes = [rank["node"] for rank in site.view(run_id)["attempts"][0]["ranks"]]
    return next(node for node in nodes if node != ray.hosts[0])


def ranks_of(workplace: Path) -> list[psutil.Process]:
    return [psutil.Process(int(path.read_text())) for path in workplace.glob("up.1.*")]


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def assert_went_on(site: Site, view: dict[str, Any], code: str, node: str | None) -> None:
    """The first attempt ended so, and the second went on from its last checkpoint."""
    assert view["status"] == "Completed", view["verdict"]
    assert [attempt["verdict"]["code"] for attempt in view["attempts"]] == [code, "completed"], view["attempts"]
    if node is not None:
        assert view["attempts"][0]["verdict"]["node"] == node
        assert node not in {rank["node"] for rank in view["attempts"][1]["ranks"]}
    said = site.log(view["id"], view["attempts"][1]["ranks"][0]["log"]).decode().splitlines()
    assert said[-1] == "done"
    resumed = next(line for line in said if line.startswith("attempt 2 from "))
    assert int(resumed.split()[-1]) > 0
