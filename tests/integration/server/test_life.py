"""A run's life, with the real server, agents and ranks."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site, on_both_databases

from muster.errors import Conflict, JobError, NotFound
from muster.paths import shared_memory_dir
from muster.wire.stream import ProgressMade

PER_PROCESS = {"type": "pytorch", "process_count_per_instance": 2}
FAILS_IN_RANK_1 = """
import os, sys, time
if os.environ["RANK"] == "1":
    raise ValueError("labels out of range")
time.sleep(600)
"""


def code(site: Site, text: str, name: str = "train.py") -> str:
    (site.folder / "src").mkdir(exist_ok=True)
    (site.folder / "src" / name).write_text(text)
    return "./src"


def test_ranks_see_the_launch_contract(site: Site):
    text = "import os, json; print(json.dumps(dict(os.environ)))"
    run_id = site.run(
        code=code(site, text), command="python train.py", distribution=PER_PROCESS, resources={"instance_count": 2}
    )
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    seen = [json.loads(site.log(run_id, rank["log"])) for rank in view["attempts"][0]["ranks"]]
    assert [env["RANK"] for env in seen] == ["0", "1", "2", "3"]
    assert [env["LOCAL_RANK"] for env in seen] == ["0", "1", "0", "1"]
    assert [env["NODE_RANK"] for env in seen] == ["0", "0", "1", "1"]
    assert {env["WORLD_SIZE"] for env in seen} == {"4"}
    assert {env["MUSTER_RUN_ID"] for env in seen} == {env["AZUREML_RUN_ID"] for env in seen} == {run_id}
    assert len({env["MASTER_PORT"] for env in seen}) == 1
    assert seen[0]["MUSTER_CHECKPOINT_DIR"] != seen[2]["MUSTER_CHECKPOINT_DIR"]
    assert {env["PYTHONUNBUFFERED"] for env in seen} == {"1"}
    # Nothing of the shell that happened to start the server.
    assert not {"PYTEST_CURRENT_TEST", "OLDPWD_OF_TEST"} & set(seen[0])


def test_gloo_works_on_simulated_nodes(site: Site):
    text = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(x)
print("sum", x.item())
dist.destroy_process_group()
"""
    run_id = site.run(
        code=code(site, text),
        command="python train.py",
        distribution={"type": "pytorch", "process_count_per_instance": 1},
        resources={"instance_count": 2},
    )
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    for rank in view["attempts"][0]["ranks"]:
        assert b"sum 3.0" in site.log(run_id, rank["log"])


def test_the_next_gang_starts_on_nodes_that_are_already_there(site: Site):
    job = {"command": "echo $MASTER_PORT", "distribution": PER_PROCESS, "resources": {"instance_count": 2}}
    ids = [site.run(**job) for _ in range(3)]
    for run_id in ids:
        assert site.wait(run_id, timeout_s=15)["status"] == "Completed"


@on_both_databases
def test_a_failed_rank_stops_the_others_and_is_named_with_its_traceback(site: Site):
    run_id = site.run(
        code=code(site, FAILS_IN_RANK_1),
        command="python train.py",
        distribution={"type": "pytorch", "process_count_per_instance": 1},
        resources={"instance_count": 2},
    )
    view = site.wait(run_id)
    verdict = view["verdict"]
    assert (view["status"], verdict["code"], verdict["rank"], verdict["node"]) == ("Failed", "exception", 1, "local-1")
    assert "ValueError: labels out of range" in verdict["message"]
    assert verdict["lines"][0].startswith("Traceback")
    ranks = view["attempts"][0]["ranks"]
    assert (ranks[0]["expected"], ranks[1]["expected"]) == (True, False)


def test_cancel_gives_the_ranks_time(site: Site):
    text = """
import signal, sys, time
def stop(*_):
    print("saving", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
time.sleep(600)
"""
    run_id = site.run(code=code(site, text), command="python train.py")
    wait_until(lambda: any(file["size"] for file in site.view(run_id)["files"]), 30, "the first line")
    site.client.cancel(run_id)
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["code"]) == ("Canceled", "cancelled")
    assert site.log(run_id) == b"ready\nsaving\n"


def test_a_second_cancel_kills(site: Site):
    run_id = site.run(command="trap '' TERM; echo ready; while :; do sleep 1; done")
    wait_until(lambda: any(file["size"] for file in site.view(run_id)["files"]), 30, "the first line")
    rank = site.rank(run_id)
    site.client.cancel(run_id)
    site.wait(run_id, "CancelRequested")
    assert rank.is_running()
    site.client.cancel(run_id, force=True)
    assert site.wait(run_id)["status"] == "Canceled"
    assert not rank.is_running() or rank.status() == psutil.STATUS_ZOMBIE


def hold_delivery(site: Site, run_id: str) -> Path:
    """Have the store refuse a run's outputs until what is returned is gone."""
    (obstacle,) = site.folder.glob(f".muster/store/runs/{run_id}/attempts/1")
    obstacle = obstacle / "outputs"
    obstacle.write_text("a file where a folder belongs")
    return obstacle


WRITES = "until [ -e go ]; do sleep 0.02; done; echo 1 > outputs/model"


def end_ranks(site: Site, run_id: str) -> None:
    (work,) = site.folder.glob(f".muster/nodes/*/attempts/{run_id}.1/work")
    (work / "go").touch()


def test_a_delivery_that_cannot_be_made_can_be_cancelled(site: Site):
    run_id = site.run(command=f"echo on; {WRITES}")
    wait_until(lambda: any(file["size"] for file in site.view(run_id)["files"]), 30, "the first line")
    hold_delivery(site, run_id)
    end_ranks(site, run_id)
    site.wait(run_id, "Finalizing")
    site.client.cancel(run_id)
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["code"]) == ("Canceled", "cancelled")
    assert view["verdict"]["message"].endswith("after its ranks had ended; not delivered: 1 of 1 files")
    assert site.log(run_id) == b"on\n"


def test_a_run_whose_ranks_failed_stays_failed_whoever_cancels_its_delivery(site: Site):
    run_id = site.run(command=f"echo on; {WRITES}; exit 3")
    wait_until(lambda: any(file["size"] for file in site.view(run_id)["files"]), 30, "the first line")
    hold_delivery(site, run_id)
    end_ranks(site, run_id)
    site.wait(run_id, "Finalizing")
    site.client.cancel(run_id, force=True)
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["code"]) == ("Failed", "exit_code")


def test_the_time_limit_ends_a_run(site: Site):
    run_id = site.run(command="echo on; exec sleep 600", limits={"timeout": 1})
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["code"]) == ("Failed", "timeout")


@on_both_databases
def test_a_queued_run_says_why_it_waits_and_can_be_cancelled(site: Site):
    cores = len(os.sched_getaffinity(0))
    first = site.run(
        command="sleep 600",
        display_name="first",
        distribution={"type": "pytorch", "process_count_per_instance": cores},
    )
    site.wait(first, "Running")
    second = site.run(command="true", display_name="second")
    third = site.run(command="true", display_name="third")
    waits = wait_until(lambda: "first" in site.view(second)["reason"] and site.view(second)["reason"], 10)
    assert "held by first" in waits
    assert wait_until(lambda: "second" in site.view(third)["reason"], 10)
    site.client.cancel(second)
    assert site.view(second)["status"] == "Canceled"
    assert site.view(second)["attempts"] == []
    site.client.cancel(first, force=True)
    assert site.wait(third)["status"] == "Completed"


@on_both_databases
def test_files_are_kept_and_nodes_that_write_one_name_do_not_overwrite_each_other(site: Site):
    text = """
import os
from muster import Run
node = os.environ["NODE_RANK"]
os.makedirs("outputs/deep", exist_ok=True)
os.makedirs("logs", exist_ok=True)
open("outputs/model.txt", "w").write("model of node " + node)
open("outputs/deep/same.txt", "w").write("same")
open(f"logs/node_{node}.txt", "w").write(node)
open("notes.txt", "w").write("note " + node)
if node == "0":
    Run.get_context().upload_file("results/notes.txt", "notes.txt")
    Run.get_context().tag("stage", "done")
"""
    run_id = site.run(
        code=code(site, text),
        command="python train.py",
        distribution={"type": "pytorch", "process_count_per_instance": 1},
        resources={"instance_count": 2},
    )
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    files = {file["path"] for file in view["files"]}
    assert {"outputs/model.txt", "node_1/outputs/model.txt", "outputs/deep/same.txt", "logs/node_0.txt"} <= files
    assert {"logs/node_1.txt", "results/notes.txt"} <= files
    assert "node_1/outputs/deep/same.txt" not in files
    assert site.log(run_id, "outputs/model.txt") == b"model of node 0"
    assert site.log(run_id, "node_1/outputs/model.txt") == b"model of node 1"
    assert site.log(run_id, "logs/node_1.txt") == b"1"
    assert view["tags"]["stage"] == "done"
    store = site.folder / ".muster" / "store" / "runs" / run_id
    assert (store / "attempts" / "1" / "outputs" / "model.txt").read_text() == "model of node 0"


def test_inputs_and_outputs_reach_the_command(site: Site, tmp_path: Path):
    data = tmp_path / "with space"
    data.mkdir()
    (data / "a.txt").write_text("data")
    text = "import sys; open(sys.argv[2] + '/copy.txt', 'w').write(open(sys.argv[1] + '/a.txt').read() + sys.argv[3])"
    run_id = site.run(
        code=code(site, text),
        command="python train.py ${{inputs.images}} ${{outputs.model}} ${{inputs.word}}",
        inputs={"images": {"type": "uri_folder", "path": str(data)}, "word": "it's $HOME"},
        outputs={"model": {}},
    )
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    assert site.log(run_id, "outputs/model/copy.txt") == b"datait's $HOME"


def test_a_second_submission_of_the_same_folder_uploads_nothing(site: Site):
    first = site.run(code=code(site, "print(1)"), command="python train.py")
    blobs = sorted((site.folder / ".muster" / "store" / "code" / "blobs").rglob("*"))
    stamps = [path.stat().st_mtime_ns for path in blobs]
    second = site.run(code="./src", command="python train.py")
    assert sorted((site.folder / ".muster" / "store" / "code" / "blobs").rglob("*")) == blobs
    assert [path.stat().st_mtime_ns for path in blobs] == stamps
    assert site.wait(first)["status"] == site.wait(second)["status"] == "Completed"


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"command": "true", "compute": "gpu-cluster"}, "there is no compute 'gpu-cluster'"),
        ({"command": "true", "resources": {"gpus_per_node": 64}}, "needs 64 GPUs"),
        (
            {"command": "true", "distribution": {"type": "pytorch"}, "resources": {"instance_count": 5000}},
            "needs 5000 nodes",
        ),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(site: Site, job, words):
    with pytest.raises(JobError, match=words):
        site.run(**job)
    assert site.client.runs() == []


def test_an_active_run_is_not_removed_and_an_ended_one_goes_with_its_files(site: Site):
    run_id = site.run(command="sleep 600")
    site.wait(run_id, "Running")
    with pytest.raises(Conflict, match="Cancel it first"):
        site.client.remove(run_id)
    site.client.cancel(run_id, force=True)
    site.wait(run_id)
    site.client.remove(run_id)
    with pytest.raises(NotFound):
        site.view(run_id)
    assert not (site.folder / ".muster" / "store" / "runs" / run_id).exists()


def test_the_stream_goes_on_from_its_cursor(site: Site):
    run_id = site.run(command="for i in 1 2 3 4 5; do echo line $i; sleep 0.05; done")
    events = []
    cursor = None
    while not events or events[-1].event.kind != "end":
        # Leave after every second event and come back with the cursor.
        for count, item in enumerate(site.client.stream(run_id, cursor=cursor)):
            events.append(item)
            cursor = item.cursor
            if count == 1 or item.event.kind == "end":
                break
    text = b"".join(item.event.data for item in events if item.event.kind == "log")
    assert text == b"".join(f"line {number}\n".encode() for number in range(1, 6))
    assert [item.event.status for item in events if item.event.kind == "state"][-1] == "Completed"


def test_a_rank_that_daemonises_a_child_and_ignores_sigterm_leaves_nothing(site: Site):
    text = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.stdout.flush()
        while True:
            time.sleep(1)
    os._exit(0)
print("parent done", flush=True)
"""
    run_id = site.run(code=code(site, text), command="python train.py")
    assert site.wait(run_id)["status"] == "Completed"
    marked = [p for p in psutil.process_iter() if _carries(p, run_id)]
    assert marked == []


def _carries(process: psutil.Process, run_id: str) -> bool:
    try:
        return process.environ().get("MUSTER_RUN_ID") == run_id and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def test_output_that_is_no_text_and_one_very_long_line_are_kept_as_they_are(site: Site):
    text = """
import sys
sys.stdout.buffer.write(bytes(range(256)))
sys.stdout.buffer.write(b"x" * 50_000_000)
sys.stdout.buffer.write(b"\\n")
"""
    run_id = site.run(code=code(site, text), command="python train.py")
    assert site.wait(run_id)["status"] == "Completed"
    assert site.log(run_id) == bytes(range(256)) + b"x" * 50_000_000 + b"\n"


def test_many_runs_leave_no_descriptor_folder_segment_or_zombie(site: Site):
    def ended_all(ids: list[str]) -> bool:
        return all(site.view(run_id)["status"] == "Completed" for run_id in ids)

    wait_until(lambda: ended_all([site.run(command="true")]) or True, 30)
    wait_until(lambda: site.client.health().active_runs == 0, 30)
    server, agent, nursery = site.server(), site.agent(), site.nursery()
    before = [process.num_fds() for process in (server, agent, nursery)]
    ids = [site.run(command="echo $$") for _ in range(200)]
    wait_until(lambda: site.client.health().active_runs == 0, 120, "the end of 200 runs")
    assert ended_all(ids)
    attempts = site.folder / ".muster" / "nodes" / "local-0" / "attempts"
    wait_until(lambda: not list(attempts.iterdir()), 20, "the removal of the attempts' folders")
    after = [process.num_fds() for process in (server, agent, nursery)]
    # A pool of database connections may have grown by some.
    assert all(late <= early + 24 for early, late in zip(before, after, strict=True)), (before, after)
    assert after[1] <= before[1] + 2 and after[2] <= before[2], (before, after)
    assert not [run_id for run_id in ids if shared_memory_dir(attempts / f"{run_id}.1").exists()]
    children = [child for parent in (server, agent, nursery) for child in parent.children(recursive=True)]
    assert not [child for child in children if child.status() == psutil.STATUS_ZOMBIE]


def test_a_signal_that_ends_a_rank_from_outside_is_told(site: Site):
    run_id = site.run(command="kill -SEGV $$")
    view = site.wait(run_id)
    assert (view["verdict"]["code"], view["attempts"][0]["ranks"][0]["signal"]) == ("signal", signal.SIGSEGV)


REPORTS_PROGRESS = """
import os
from muster import Run
run, rank = Run.get_context(), int(os.environ["RANK"])
run.progress(float("nan"), 10)
run.progress(9 - 5 * rank, 10, "steps")
if rank == 0:
    run.progress(float("inf"))
"""


@on_both_databases
def test_each_rank_has_a_progress_and_the_slowest_counts(site: Site):
    run_id = site.run(code=code(site, REPORTS_PROGRESS), command="python train.py", distribution=PER_PROCESS)
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    assert view["progress"] == {"done": 4, "total": 10, "unit": "steps", "rank": 1}
    events = [item.event for item in site.client.stream(run_id) if isinstance(item.event, ProgressMade)]
    assert {event.rank: event.done for event in events} == {0: 9, 1: 4}
