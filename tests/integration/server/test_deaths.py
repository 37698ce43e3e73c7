"""SIGKILL to every part, at each step of a run's life: nothing is lost, nothing is left, the verdict is right."""

from __future__ import annotations

import json

import psutil
import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import ENDED, Site, on_both_databases

LINES = 150
COUNT = f"""
import os, sys, time
from muster import Run
run, rank = Run.get_context(), os.environ.get("RANK", "0")
for number in range({LINES}):
    print(rank, number, "x" * 50)
    run.log("number", number)
    time.sleep(0.005)
"""
NO_RETRIES = {"node_loss": 0, "platform": 0}
PER_PROCESS = {"type": "pytorch", "process_count_per_instance": 1}


def start(site: Site, nodes: int = 1, **more) -> str:
    (site.folder / "src").mkdir(exist_ok=True)
    (site.folder / "src" / "count.py").write_text(COUNT)
    distribution = {"distribution": PER_PROCESS, "resources": {"instance_count": nodes}} if nodes > 1 else {}
    job = {"code": "./src", "command": "python count.py", "retry": NO_RETRIES, **distribution, **more}
    return site.run(**job)


def logs_of(view) -> list[str]:
    return [rank["log"] for rank in view["attempts"][-1]["ranks"]]


def expected(rank: int) -> bytes:
    return b"".join(f"{rank} {number} {'x' * 50}\n".encode() for number in range(LINES))


def wait_for_line(site: Site, run_id: str, line: int, ranks: int = 1) -> None:
    """Wait until so many ranks of the run have printed so far."""

    def printed() -> bool:
        view = site.view(run_id)
        if view["status"] in ENDED:
            return True
        logs = [file for file in view["files"] if file["path"].startswith("user_logs/") and file["size"] >= line * 55]
        return len(logs) >= ranks

    wait_until(printed, 60.0, f"line {line} of {run_id}")


def assert_whole(site: Site, run_id: str) -> None:
    """Every byte once and in order, every metric point once and in order."""
    view = site.view(run_id)
    for rank, log in enumerate(logs_of(view)):
        assert site.log(run_id, log) == expected(rank)
    points = site.client.metrics(run_id)
    for rank in range(len(logs_of(view))):
        values = [point.value for point in points if point.name == "number" and point.rank == rank]
        assert values == list(range(LINES))


def assert_prefix(site: Site, run_id: str) -> None:
    """What was printed before the end is there, once and in order."""
    view = site.view(run_id)
    points = site.client.metrics(run_id)
    for rank, log in enumerate(logs_of(view)):
        known = {file["path"] for file in view["files"]}
        text = site.log(run_id, log) if log in known else b""
        assert expected(rank).startswith(text)
        values = [point.value for point in points if point.name == "number" and point.rank == rank]
        assert values == list(range(len(values)))


def gone(*processes: psutil.Process) -> None:
    for process in processes:
        wait_until(lambda p=process: not p.is_running() or p.status() == "zombie", 10.0, f"the end of {process}")


@pytest.mark.parametrize(
    ("site", "moment"),
    [*(("sqlite", moment) for moment in ("submitted", "begun", "middle", "late")), ("postgresql", "middle")],
    indirect=["site"],
)
def test_the_server_can_die_at_any_moment(site: Site, moment: str):
    server = site.server()
    run_id = start(site, nodes=2)
    if moment != "submitted":
        wait_for_line(site, run_id, {"begun": 1, "middle": LINES // 2, "late": LINES - 5}[moment])
    server.kill()
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    assert_whole(site, run_id)
    assert site.server().pid != server.pid


def test_the_server_can_die_again_and_again(site: Site):
    run_id = start(site, nodes=2)
    for _ in range(5):
        site.server().kill()
    site.wait(run_id)
    assert site.view(run_id)["status"] == "Completed"
    assert_whole(site, run_id)


def test_the_run_goes_on_while_no_server_is_there(site: Site):
    run_id = start(site, nodes=2)
    wait_for_line(site, run_id, 1)
    ranks = [site.rank(run_id, 0), site.rank(run_id, 1)]
    site.server().kill()
    gone(*ranks)
    assert site.wait(run_id)["status"] == "Completed"
    assert_whole(site, run_id)


@pytest.mark.parametrize("line", [1, LINES // 2])
def test_a_killed_rank_is_named_and_the_gang_ends(site: Site, line: int):
    run_id = start(site, nodes=2)
    wait_for_line(site, run_id, line)
    ranks = [site.rank(run_id, 0), site.rank(run_id, 1)]
    ranks[1].kill()
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["code"], view["verdict"]["rank"]) == ("Failed", "signal", 1)
    assert view["verdict"]["node"] == "local-1"
    gone(*ranks)
    assert_prefix(site, run_id)


def test_a_killed_keeper_leaves_no_rank_behind(site: Site):
    run_id = start(site, nodes=2)
    wait_for_line(site, run_id, 5)
    ranks = [site.rank(run_id, 0), site.rank(run_id, 1)]
    site.keeper(run_id, 0).kill()
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["code"]) == ("Failed", "platform")
    gone(*ranks)
    assert_prefix(site, run_id)


def test_a_killed_nursery_does_not_matter(site: Site):
    run_id = start(site)
    wait_for_line(site, run_id, 5)
    site.nursery().kill()
    assert site.wait(run_id)["status"] == "Completed"
    assert_whole(site, run_id)
    second = start(site)
    assert site.wait(second)["status"] == "Completed"


@pytest.mark.parametrize(
    ("site", "line"), [("sqlite", 1), ("sqlite", LINES // 2), ("postgresql", 5)], indirect=["site"]
)
def test_a_killed_agent_is_a_lost_node_and_its_logs_are_delivered(site: Site, line: int):
    run_id = start(site, nodes=2)
    wait_for_line(site, run_id, line, ranks=2)
    ranks = [site.rank(run_id, 0), site.rank(run_id, 1)]
    site.agent("local-1").kill()
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["code"], view["verdict"]["node"]) == ("Failed", "node_lost", "local-1")
    gone(*ranks)
    assert_prefix(site, run_id)
    assert site.log(run_id, logs_of(view)[1])


def test_an_agent_that_dies_before_it_began_is_replaced(site: Site):
    site.wait(start(site))
    site.agent().kill()
    run_id = start(site)
    assert site.wait(run_id)["status"] == "Completed"
    assert_whole(site, run_id)


def test_agent_nursery_and_keeper_killed_at_once_leave_nothing(site: Site):
    run_id = start(site)
    wait_for_line(site, run_id, 5)
    rank = site.rank(run_id)
    for process in (site.agent(), site.nursery(), site.keeper(run_id)):
        process.suspend()
    for process in (rank.parent(), rank.parent().parent(), rank.parent().parent().parent()):
        process.kill()
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["code"]) == ("Failed", "node_lost")
    gone(rank)
    assert_prefix(site, run_id)


def test_a_killed_torchrun_takes_its_children_along(site: Site):
    (site.folder / "src").mkdir()
    (site.folder / "src" / "count.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(600)\n")
    run_id = site.run(code="./src", command="torchrun --nproc-per-node 2 count.py", distribution={"type": "pytorch"})
    wait_until(lambda: any(file["size"] for file in site.view(run_id)["files"]), 60, "the children's first line")
    launcher = site.rank(run_id)
    children = wait_until(lambda: [p for p in launcher.children(recursive=True) if "count.py" in p.cmdline()], 30)
    children[0].parent().kill()
    view = site.wait(run_id)
    assert (view["status"], view["verdict"]["code"]) == ("Failed", "signal")
    gone(launcher, *children)


@on_both_databases
def test_every_submission_is_one_run_even_when_the_server_dies_between(site: Site):
    keys = [f"key-{number}" for number in range(12)]
    from muster.job.spec import JobSpec

    spec = JobSpec(command="true")
    ids = []
    for number, key in enumerate(keys):
        if number % 4 == 2:
            site.server().kill()
        ids.append(site.client.submit(spec, key=key).id)
    again = [site.client.submit(spec, key=key).id for key in keys]
    assert again == ids
    assert len(set(ids)) == len(keys) == len(site.client.runs(limit=100))
    for run_id in ids:
        assert site.wait(run_id)["status"] == "Completed"


def test_a_run_survives_its_folder_of_code(site: Site):
    """The snapshot counts, not what happens to the folder later."""
    run_id = start(site)
    (site.folder / "src" / "count.py").unlink()
    assert site.wait(run_id)["status"] == "Completed"
    assert json.dumps(site.view(run_id))
