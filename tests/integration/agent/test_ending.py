"""How ranks end, and that nothing of them is left."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from muster.wire.node.agents import Order
from muster.wire.node.plan import NodePlan

from .conftest import Harness, alive, plan_of, until


def test_ranks_that_end_well_end_the_attempt(node: Harness) -> None:
    node.start_agent()
    key = node.run("echo zero", "echo one")
    ended = node.server.wait_event(key, "ended")
    assert ended.data.reason == "done"
    assert {rank: exit["exit_code"] for rank, exit in node.exits(key).items()} == {0: 0, 1: 0}
    node.server.wait_event(key, "delivered")
    assert (node.log(key, 0), node.log(key, 1)) == (b"zero\n", b"one\n")
    kinds = [event.kind for event in node.server.events(key)]
    assert kinds == ["prepared", "started", "exited", "exited", "ended", "delivered"]


def test_a_failed_rank_takes_the_gang_down(node: Harness) -> None:
    node.start_agent()
    key = node.run("exit 3", "sleep 1000", "trap '' TERM; while :; do sleep 1000; done")
    ended = node.server.wait_event(key, "ended")
    exits = node.exits(key)
    assert exits[0]["exit_code"] == 3
    assert not exits[0]["expected"]
    assert (exits[1]["signal"], exits[1]["expected"]) == (signal.SIGTERM, True)
    assert (exits[2]["signal"], exits[2]["expected"]) == (signal.SIGKILL, True)
    assert ended.data.reason == "rank_failed"


def test_ranks_that_fail_together_are_all_heard(node: Harness) -> None:
    node.start_agent()
    key = node.run("exit 3", "sleep 0.2; exit 4")
    node.server.wait_event(key, "ended")
    assert {rank: (exit["exit_code"], exit["expected"]) for rank, exit in node.exits(key).items()} == {
        0: (3, False),
        1: (4, False),
    }


def test_a_killed_rank_is_reported_with_its_signal(node: Harness) -> None:
    node.start_agent()
    key = node.run("sleep 1000", "sleep 1000")
    import os

    os.kill(node.pids(key)[1], signal.SIGKILL)
    node.server.wait_event(key, "ended")
    exits = node.exits(key)
    assert (exits[1]["signal"], exits[1]["expected"], exits[1]["oom_killed"]) == (signal.SIGKILL, False, False)
    assert exits[0]["expected"]


def test_daemonised_children_are_ended_with_the_ranks(node: Harness) -> None:
    node.start_agent()
    key = node.run("(setsid sh -c 'echo $$; exec sleep 1000' &) ; (setsid setsid sleep 1000 &); sleep 0.1; exit 0")
    ended = node.server.wait_event(key, "ended")
    node.server.wait_event(key, "delivered")
    daemon = int(node.log(key).split()[0])
    assert not alive(daemon)
    assert ended.data.reason == "done"
    assert node.exits(key)[0]["exit_code"] == 0
    assert '"other_pids": [' in node.paths.attempt(*key).journal.read_text()


def test_a_double_forked_python_daemon_that_ignores_signals_is_ended(node: Harness) -> None:
    script = (
        "import os,signal,time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)\n"
        "print(os.getpid(), flush=True)\n"
        "time.sleep(1000)\n"
    )
    node.start_agent()
    key = node.run(["python", "-c", script.replace("$", "$$")])
    node.server.wait_event(key, "delivered")
    assert not any(alive(int(line)) for line in node.log(key).split())


def test_a_fork_storm_is_ended(node: Harness) -> None:
    script = (
        "import os,time\n"
        "print('storm', flush=True)\n"
        "for _ in range(40):\n"
        "    if os.fork() == 0:\n"
        "        while True:\n"
        "            if os.fork(): os._exit(0)\n"
        "            os.setsid()\n"
        "            time.sleep(0.002)\n"
        "time.sleep(1000)\n"
    )
    node.start_agent()
    key = node.run(["python", "-c", script])
    node.wait_log(key, b"storm")
    node.stop(key, grace_s=0.0)
    node.server.wait_event(key, "ended")
    left = [pid for pid in node.marked() if "import os,time" in _command(pid)]
    assert left == []


def test_a_stop_gives_its_grace_to_what_a_shell_started(node: Harness) -> None:
    node.start_agent()
    worker = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), print('saved'), sys.exit(0)))\n"
        "print('ready')\n"
        "time.sleep(1000)\n"
    )
    key = node.run(f'echo x; python -c "{worker}"; echo after')
    node.wait_log(key, b"ready")
    node.stop(key, grace_s=30.0)
    ended = node.server.wait_event(key, "ended")
    node.server.wait_event(key, "delivered")
    assert b"saved" in node.log(key)
    assert ended.data.reason == "cancelled"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_stop_leaves_the_workers_of_a_python_program_to_it(node: Harness, method: str) -> None:
    """As those of a DataLoader, without which a training could not go on until it has saved."""
    script = (
        "import multiprocessing, signal, sys, time\n"
        f"worker = multiprocessing.get_context('{method}').Process(target=time.sleep, args=(1000,))\n"
        "worker.start()\n"
        "def save(*_):\n"
        "    worker.join(0.5)\n"
        "    print('saved beside', 'a living' if worker.is_alive() else 'a dead', 'worker', flush=True)\n"
        "    worker.terminate()\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('ready', flush=True)\n"
        "time.sleep(1000)\n"
    )
    node.start_agent()
    key = node.run(["python", "-c", script])
    node.wait_log(key, b"ready")
    node.stop(key, grace_s=600.0)
    node.server.wait_event(key, "delivered")
    assert b"saved beside a living worker" in node.log(key)


def test_workers_whose_program_ends_at_once_do_not_use_up_its_grace(node: Harness) -> None:
    script = (
        "import multiprocessing, time\n"
        "def fork(depth):\n"
        "    if depth:\n"
        "        multiprocessing.get_context('fork').Process(target=fork, args=(depth - 1,)).start()\n"
        "    print('ready', depth, flush=True)\n"
        "    time.sleep(1000)\n"
        "fork(2)\n"
    )
    node.start_agent()
    key = node.run(["python", "-c", script])
    for depth in range(3):
        node.wait_log(key, b"ready %d" % depth)
    node.stop(key, grace_s=600.0)
    node.server.wait_event(key, "delivered")
    assert node.exits(key)[0]["signal"] == signal.SIGTERM


def test_a_second_stop_shortens_the_grace(node: Harness) -> None:
    node.start_agent()
    key = node.run("trap '' TERM; echo ready; while :; do sleep 1000; done")
    node.wait_log(key, b"ready")
    node.stop(key, grace_s=600.0)
    journal = node.paths.attempt(*key).journal
    until(lambda: "stopping" in journal.read_text(), what="SIGTERM")
    assert node.server.events(key, "ended") == []
    node.stop(key, grace_s=0.0, reason="killed")
    node.server.wait_event(key, "ended")
    assert node.exits(key)[0]["signal"] == signal.SIGKILL


def test_a_stopped_process_can_use_its_grace(node: Harness) -> None:
    import os

    node.start_agent()
    key = node.run("trap 'echo bye; exit 0' TERM; echo ready; while :; do read -t 1 <> <(:); done")
    node.wait_log(key, b"ready")
    os.kill(node.pids(key)[0], signal.SIGSTOP)
    node.stop(key, grace_s=20.0)
    node.server.wait_event(key, "delivered")
    assert b"bye" in node.log(key)


def test_the_stop_file_appears_when_the_ranks_should_stop(node: Harness) -> None:
    node.start_agent()
    key = node.run("trap '' TERM; echo ready; until [ -e $MUSTER_STOP_FILE ]; do sleep 0.02; done; echo seen")
    node.wait_log(key, b"ready")
    node.stop(key, grace_s=30.0)
    node.server.wait_event(key, "delivered")
    assert b"seen" in node.log(key)


def test_the_time_limit_is_told_and_kept(node: Harness) -> None:
    node.start_agent()
    key = node.run("sleep 1000", timeout_s=0.2)
    node.server.wait_event(key, "timed_out")
    assert node.server.wait_event(key, "ended").data.reason == "timeout"


def test_a_newer_attempt_ends_the_older_one(node: Harness) -> None:
    node.start_agent()
    older = node.run("sleep 1000")
    node.pids(older)
    newer = node.run("echo new", run=older[0], attempt=2)
    assert node.server.wait_event(older, "ended").data.reason == "superseded"
    node.server.wait_event(newer, "delivered")
    assert node.log(newer) == b"new\n"


def with_helper() -> NodePlan:
    """A worker that ends, and a rank that serves it."""
    plan = plan_of("echo worker", "sleep 1000")
    return replace(plan, ranks=(plan.ranks[0], replace(plan.ranks[1], essential=False, role="ps")))


def test_non_essential_ranks_are_stopped_when_the_others_are_done(node: Harness) -> None:
    node.start_agent()
    node.server.order(Order(run="tf", attempt=1, action="prepare", plan=with_helper()))
    node.server.wait_event(("tf", 1), "ended")
    exits = node.exits(("tf", 1))
    assert (exits[0]["exit_code"], exits[1]["signal"], exits[1]["expected"]) == (0, signal.SIGTERM, True)


def test_with_other_nodes_in_the_gang_the_server_says_when_helpers_are_done(node: Harness) -> None:
    node.start_agent()
    order = Order(run="tf", attempt=1, action="prepare", num_nodes=2, plan=with_helper())
    node.server.order(order)
    exited = node.server.wait_event(("tf", 1), "exited")
    assert exited.data.rank == 0
    helper = node.pids(("tf", 1))[1]
    assert alive(helper)
    node.server.order(replace(order, action="stop", stop_reason="done", grace_s=0.0))
    node.server.wait_event(("tf", 1), "ended")
    assert not alive(helper)


def test_an_agent_that_hears_no_server_stops_its_gangs(node: Harness) -> None:
    node.start_agent(stale_after_s=1.0)
    key = node.run("sleep 1000")
    pid = node.pids(key)[0]
    node.server.stop()
    until(lambda: not alive(pid), what="the end of the stale rank")
    node.server.start()
    assert node.server.wait_event(key, "ended").data.reason == "stale"


def _command(pid: int) -> str:
    from muster.host import processes

    return processes.command_line(pid)


def test_before_the_gang_is_ended_ranks_that_were_waited_for_show_where_they_are(node: Harness) -> None:
    node.start_agent()
    stuck = "python -c 'import time\ndef load(): time.sleep(1000)\nprint(1, flush=True); load()'"
    key = node.run("sleep 1; echo Timed out waiting 4000ms; exit 1", stuck, "sleep 1000")
    node.server.wait_event(key, "ended")
    node.server.wait_event(key, "delivered")
    shown = node.log(key, 1).decode()
    assert "muster: where rank 1 (process" in shown
    assert 'File "<string>", line 2 in load' in shown
    assert node.log(key, 2) == b""
    assert node.exits(key)[2]["signal"] == signal.SIGTERM


def test_a_failure_that_complains_of_nobody_leaves_the_other_logs_alone(node: Harness) -> None:
    node.start_agent()
    key = node.run("sleep 1; exit 3", "python -c 'import time; print(1, flush=True); time.sleep(1000)'")
    node.server.wait_event(key, "ended")
    node.server.wait_event(key, "delivered")
    assert node.log(key, 1) == b"1\n"
