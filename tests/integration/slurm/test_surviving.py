"""What survives which death on a real Slurm: servers, controllers, nodes, and jobs that Slurm puts back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
from tests.conftest import wait_until
from tests.integration.server.conftest import Site
from tests.integration.slurm.conftest import SlurmWorkspace, job_of, make_cluster, muster
from tests.sites.slurm import SlurmSite

from muster.wire.stream import Note

GANG = {"distribution": {"type": "pytorch", "process_count_per_instance": 1}, "resources": {"instance_count": 2}}


def test_a_requeued_job_is_the_next_attempt_of_its_run(site: Site, slurm: SlurmSite, tmp_path: Path):
    command = (
        f"echo attempt $MUSTER_ATTEMPT; [ $MUSTER_ATTEMPT = 2 ] || {{ touch {tmp_path}/up.$RANK; exec sleep 600; }}"
    )
    run_id = site.run(command=command, compute="hpc", retry={"backoff_s": 0}, **GANG)
    wait_until(lambda: len(list(tmp_path.glob("up.*"))) == 2, 20, "the ranks")
    job = job_of(slurm, run_id)
    slurm.command("scontrol", "requeue", job)
    view = site.wait(run_id, timeout_s=60)
    assert view["status"] == "Completed", view["verdict"]
    assert [attempt["verdict"]["code"] for attempt in view["attempts"]] == ["preempted", "completed"]
    assert [site.log(run_id, rank["log"]) for rank in view["attempts"][1]["ranks"]] == [b"attempt 2\n"] * 2
    names = slurm.command("squeue", "-h", "-t", "all", "-o", "%i %j").splitlines()
    assert [line.split()[0] for line in names if run_id in line] == [job]


def test_a_requeue_beyond_the_budget_ends_the_run_and_the_job(site: Site, slurm: SlurmSite, tmp_path: Path):
    command = f"touch {tmp_path}/up; exec sleep 600"
    run_id = site.run(command=command, compute="hpc", retry={"preemption": 0})
    wait_until((tmp_path / "up").exists, 20, "the rank")
    job = job_of(slurm, run_id)
    slurm.command("scontrol", "requeue", job)
    view = site.wait(run_id, timeout_s=60)
    assert (view["status"], view["verdict"]["code"]) == ("Failed", "preempted"), view["verdict"]
    wait_until(lambda: job not in slurm.command("squeue", "-h", "-o", "%i").split(), 20, "the end of the job")


def test_a_controller_that_restarts_is_waited_for(site: Site, slurm: SlurmSite, tmp_path: Path):
    going = site.run(command=f"touch {tmp_path}/up; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done", compute="hpc")
    wait_until((tmp_path / "up").exists, 20, "the rank")
    # One that has not written its jobs down gives their numbers to others, which the nodes refuse.
    wait_until(lambda: slurm.has_saved(tmp_path / "up"), 60, "the controller's record of it")
    slurm.kill_controller()
    waiting = site.run(command="true", compute="hpc")
    wait_until(lambda: "Slurm does not answer" in site.view(waiting)["reason"], 30, "the reason")
    assert site.view(going)["status"] == "Running"
    shown = site.client.cluster("hpc")
    assert (shown.state, {node.state for node in shown.nodes}) == ("unreachable", {"unknown"})
    assert shown.reason.startswith("Slurm does not answer: ")
    assert "hpc  unreachable" in muster("cluster", "show", "hpc")
    wait_until(lambda: _told(site, going, "Slurm does not answer"), 30, "the word to those who follow it")
    slurm.start_controller()
    wait_until(lambda: _told(site, going, "Slurm answers again"), 30, "the word of its return")
    assert site.client.cluster("hpc").state == "ready"
    (tmp_path / "go").touch()
    assert site.wait(going)["status"] == "Completed"
    assert site.wait(waiting)["status"] == "Completed"


def test_a_run_ends_while_the_server_is_away_and_the_nodes_are_not_kept_for_it(
    own_site: Site, slurm: SlurmSite, tmp_path: Path
):
    site = own_site
    make_cluster(site, "brisk", linger_seconds=1)
    command = f"echo first; touch {tmp_path}/up.$RANK; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; echo last"
    run_id = site.run(command=command, compute="brisk", **GANG)
    wait_until(lambda: len(list(tmp_path.glob("up.*"))) == 2, 20, "the ranks")
    job = job_of(slurm, run_id)
    site.server().kill()
    (tmp_path / "go").touch()
    wait_until(lambda: job not in slurm.command("squeue", "-h", "-o", "%i").split(), 30, "the end of the job")
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    assert [site.log(run_id, rank["log"]) for rank in view["attempts"][0]["ranks"]] == [b"first\nlast\n"] * 2


def test_a_server_that_was_killed_right_after_sbatch_finds_its_job_again(own_site: Site, slurm: SlurmSite):
    site = own_site
    make_cluster(site, "held", sbatch=["--hold"])
    run_id = site.run(command="echo once", compute="held")
    wait_until(lambda: run_id in slurm.command("squeue", "-h", "-o", "%j"), 20, "the job")
    job = job_of(slurm, run_id)
    site.server().kill()
    mark = site.folder / ".muster" / "nodes" / f"{run_id}.1.0" / "slurm.job"
    mark.unlink(missing_ok=True)
    assert site.view(run_id)["status"] == "Provisioning"
    wait_until(mark.exists, 20, "the look at the queue")
    slurm.command("scontrol", "release", job)
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    names = slurm.command("squeue", "-h", "-t", "all", "-o", "%j").splitlines()
    assert len([name for name in names if run_id in name]) == 1


def test_a_node_that_fails_leaves_a_stale_attempt_that_publishes_nothing(site: Site, slurm: SlurmSite, tmp_path: Path):
    command = (
        f"echo attempt $MUSTER_ATTEMPT on $RANK; touch {tmp_path}/up.$MUSTER_ATTEMPT.$RANK; "
        f"[ $MUSTER_ATTEMPT = 2 ] && exit 0; trap '' TERM; "
        f"while [ ! -e {tmp_path}/late ]; do sleep 0.1; done; "
        'mkdir -p "$MUSTER_CHECKPOINT_DIR/late"; echo stale > "$MUSTER_CHECKPOINT_DIR/late/model"; exec sleep 600'
    )
    run_id = site.run(command=command, compute="hpc", retry={"backoff_s": 0}, **GANG)
    wait_until(lambda: len(list(tmp_path.glob("up.1.*"))) == 2, 20, "the ranks")
    victim = wait_until(lambda: _started(site, run_id, 1), 10, "the word of its start")
    stale = psutil.Process(victim["pid"])
    slurm.kill_node(victim["node"])
    try:
        wait_until(lambda: site.view(run_id)["attempts"][-1]["number"] == 2, 90, "the second attempt")
        (tmp_path / "late").touch()
        view = site.wait(run_id, timeout_s=60)
        assert view["status"] == "Completed", view["verdict"]
        first = view["attempts"][0]["verdict"]
        assert (first["code"], first["node"]) == ("node_lost", victim["node"]), first
        assert f"node {victim['node']} (down" in first["message"]
        assert view["excluded_nodes"] == [victim["node"]]
        assert victim["node"] not in [rank["node"] for rank in view["attempts"][1]["ranks"]]
        assert [item for item in view["checkpoints"] if item["attempt"] == 1] == []
        wait_until(lambda: not stale.is_running() or stale.status() == psutil.STATUS_ZOMBIE, 60, "the stale rank's end")
    finally:
        slurm.start_node(victim["node"])


def test_a_run_longer_than_the_partition_allows_goes_on_from_its_checkpoint(site: SlurmWorkspace):
    view = site.wait(site.long_run, timeout_s=120)
    assert view["status"] == "Completed", json.dumps(view["verdict"])
    assert [attempt["verdict"]["code"] for attempt in view["attempts"]] == ["time_slice", "completed"]
    assert site.log(site.long_run).decode() == "from 7\n"


def test_a_preempted_job_that_may_not_be_requeued_is_a_preempted_run(site: Site, slurm: SlurmSite, tmp_path: Path):
    make_cluster(site, "no-requeue", requeue=False)
    command = f"touch {tmp_path}/up; exec sleep 600"
    run_id = site.run(command=command, compute="no-requeue", retry={"preemption": 0})
    wait_until((tmp_path / "up").exists, 20, "the rank")
    node = site.view(run_id)["attempts"][0]["nodes"][0]["name"]
    urgent = slurm.command("sbatch", "--parsable", "-p", "urgent", "-w", node, "--exclusive", "--wrap", "sleep 60")
    view = site.wait(run_id)
    slurm.command("scancel", urgent)
    assert (view["status"], view["verdict"]["code"]) == ("Failed", "preempted"), view["verdict"]
    assert "was preempted by Slurm" in view["verdict"]["message"]


def _told(site: Site, run_id: str, what: str) -> bool:
    """Whether those who follow a run heard something."""
    events = (item.event for item in site.client.stream(run_id, follow=False))
    return any(what in event.text for event in events if isinstance(event, Note))


def _started(site: Site, run_id: str, rank: int) -> dict[str, Any] | None:
    found = site.view(run_id)["attempts"][0]["ranks"][rank]
    return found if found["pid"] else None
