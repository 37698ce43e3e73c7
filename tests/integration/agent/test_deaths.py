"""SIGKILL and SIGSTOP to rank, keeper, nursery and agent, alone and together: no process and no byte is lost."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from .conftest import Harness, alive, is_nursery, until

# A rank with a daemonised child, which both print who they are.
_FAMILY = "echo $$; (setsid sh -c 'echo $$; exec sleep 1000' &); echo ready; sleep 1000; true"


def _family(node: Harness, key: tuple[str, int]) -> list[int]:
    log = node.server.wait(
        lambda kept: (
            len((got := bytes(kept.streams.get((*key, "user_logs/std_log_process_0.txt"), b""))).split()) >= 3 and got
        ),
        what="the family",
    )
    return [int(word) for word in log.split() if word.isdigit()]


def test_a_dead_keeper_leaves_nothing_and_the_attempt_is_lost_with_it(node: Harness) -> None:
    node.start_agent()
    key = node.run(_FAMILY)
    other = node.run("echo other; sleep 1000; true")
    family, other_pid = _family(node, key), node.pids(other)[0]
    os.kill(node.keeper(key), signal.SIGKILL)
    ended = node.server.wait_event(key, "ended")
    assert ended.data.reason == "keeper_lost"
    assert not any(alive(pid) for pid in family)
    assert node.exits(key)[0]["lost_with"] == "keeper"
    node.server.wait_event(key, "delivered")
    assert b"ready" in node.log(key)
    assert alive(other_pid), "another attempt must not be touched"


def test_keepers_live_on_when_the_nursery_dies(node: Harness) -> None:
    node.start_agent()
    key = node.run("echo ready; until [ -e go ]; do sleep 0.02; done; echo done")
    node.wait_log(key, b"ready")
    before = node.nursery()
    os.kill(before, signal.SIGKILL)
    until(lambda: _new_nursery(node, before), what="a new nursery")
    later = node.run("echo later")
    node.server.wait_event(later, "delivered")
    (node.paths.attempt(*key).work / "go").touch()
    assert node.server.wait_event(key, "ended").data.reason == "done"
    node.server.wait_event(key, "delivered")
    assert node.log(key).endswith(b"done\n")


def test_a_keeper_that_dies_after_its_nursery_leaves_nothing(node: Harness) -> None:
    node.start_agent()
    key = node.run(_FAMILY)
    family, keeper, before = _family(node, key), node.keeper(key), node.nursery()
    os.kill(before, signal.SIGKILL)
    until(lambda: _new_nursery(node, before), what="a new nursery")
    os.kill(keeper, signal.SIGKILL)
    assert node.server.wait_event(key, "ended").data.reason == "keeper_lost"
    assert not any(alive(pid) for pid in family)


def test_nursery_and_keeper_may_die_at_once(node: Harness) -> None:
    node.start_agent()
    key = node.run(_FAMILY)
    family, keeper, nursery = _family(node, key), node.keeper(key), node.nursery()
    for pid in (nursery, keeper):
        os.kill(pid, signal.SIGKILL)
    assert node.server.wait_event(key, "ended").data.reason == "keeper_lost"
    assert not any(alive(pid) for pid in family)


def test_a_stopped_keeper_does_not_outlive_a_kill(node: Harness) -> None:
    node.start_agent()
    key = node.run(_FAMILY)
    family, keeper = _family(node, key), node.keeper(key)
    os.kill(keeper, signal.SIGSTOP)
    node.stop(key, grace_s=0.0, reason="killed")
    assert node.server.wait_event(key, "ended").data.reason == "keeper_lost"
    assert not any(alive(pid) for pid in (*family, keeper))
    node.server.wait_event(key, "delivered")


def test_a_stopped_keeper_is_continued_and_its_attempt_ends_as_if_nothing_had_happened(node: Harness) -> None:
    node.start_agent()
    key = node.run("echo ready; until [ -e go ]; do sleep 0.02; done; echo done")
    node.wait_log(key, b"ready")
    os.kill(node.keeper(key), signal.SIGSTOP)
    (node.paths.attempt(*key).work / "go").touch()
    assert node.server.wait_event(key, "ended").data.reason == "done"


def test_a_stopped_nursery_holds_up_neither_a_new_attempt_nor_the_end_of_an_old_one(node: Harness) -> None:
    node.start_agent()
    old = node.run(_FAMILY)
    family, keeper, before = _family(node, old), node.keeper(old), node.nursery()
    os.kill(before, signal.SIGSTOP)
    os.kill(keeper, signal.SIGKILL)
    new = node.run("echo new", ports_count=1)
    assert node.server.wait_event(new, "ended").data.reason == "done"
    assert node.log(new) == b"new\n"
    assert node.server.wait_event(old, "ended").data.reason == "keeper_lost"
    assert not any(alive(pid) for pid in (*family, keeper, before))


def test_an_agent_that_ends_takes_a_stopped_nursery_and_keeper_along(node: Harness) -> None:
    agent = node.start_agent()
    key = node.run(_FAMILY)
    family, keeper, nursery = _family(node, key), node.keeper(key), node.nursery()
    for pid in (nursery, keeper):
        os.kill(pid, signal.SIGSTOP)
    for _ in range(2):
        agent.send_signal(signal.SIGTERM)
    agent.wait(40)
    until(lambda: not any(alive(pid) for pid in (*family, keeper, nursery)), what="the end of all")


def test_ranks_end_with_their_agent_and_the_next_one_delivers(node: Harness) -> None:
    node.start_agent()
    key = node.run(_FAMILY, "echo second; sleep 1000; true")
    family = _family(node, key)
    node.kill_agent()
    until(lambda: not node.marked(), what="the end of the node's processes")
    assert not any(alive(pid) for pid in family)
    node.start_agent()
    assert node.server.kept.hellos[-1].holding == (key,)
    assert node.server.wait_event(key, "ended").data.reason == "agent_lost"
    node.server.wait_event(key, "delivered")
    assert node.log(key, 1) == b"second\n"
    assert set(node.exits(key)) == {0, 1}
    node.forget(key)


@pytest.mark.parametrize("victims", ["agent nursery", "agent keeper", "agent nursery keeper"])
def test_whatever_dies_with_the_agent_the_next_one_finds_it_clean(node: Harness, victims: str) -> None:
    node.start_agent()
    key = node.run(_FAMILY)
    family = _family(node, key)
    assert node.agent is not None
    pids = {"agent": node.agent.pid, "nursery": node.nursery(), "keeper": node.keeper(key)}
    for victim in victims.split():
        os.kill(pids[victim], signal.SIGKILL)
    node.agent.wait()
    node.start_agent()
    assert not any(alive(pid) for pid in family)
    assert node.server.wait_event(key, "ended").data.reason == "agent_lost"
    node.server.wait_event(key, "delivered")
    node.server.wait_event(node.run("echo again"), "delivered")


def test_an_attempt_that_ended_before_its_agent_died_is_delivered_as_it_was(node: Harness) -> None:
    node.start_agent()
    node.server.lose_requests = 1 << 30
    key = node.run("echo result; echo kept > outputs/file; exit 5")
    journal = node.paths.attempt(*key).journal
    until(lambda: journal.exists() and '"ended"' in journal.read_text(), what="the end of the rank")
    node.kill_agent()
    node.server.lose_requests = 0
    node.start_agent()
    assert node.server.wait_event(key, "ended").data.reason == "rank_failed"
    node.server.wait_event(key, "delivered")
    assert node.exits(key)[0]["exit_code"] == 5
    assert node.log(key) == b"result\n"
    assert node.server.kept.files[(*key, "outputs/file")] == b"kept\n"


def test_a_second_agent_of_a_node_does_not_start(node: Harness) -> None:
    import subprocess
    import sys

    node.start_agent()
    second = subprocess.run(
        [sys.executable, "-m", "muster.agent", str(node.paths.config)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert second.returncode != 0
    assert "running already" in second.stderr


def test_sigterm_stops_with_grace_delivers_and_exits(node: Harness) -> None:
    agent = node.start_agent()
    key = node.run("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done")
    node.wait_log(key, b"ready")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(20) == 0
    assert node.server.wait_event(key, "ended").data.reason == "agent_stopped"
    assert node.server.events(key, "delivered")
    assert node.log(key).endswith(b"saved\n")
    assert not node.marked()


def test_an_agent_told_to_leave_does_so_when_it_holds_nothing(node: Harness) -> None:
    agent = node.start_agent()
    key = node.run("echo x")
    node.server.wait_event(key, "delivered")
    node.server.dismiss()
    node.forget(key)
    assert agent.wait(20) == 0


def test_an_agent_of_one_allocation_ends_with_its_last_attempt(node: Harness) -> None:
    agent = node.start_agent(long_lived=False)
    key = node.run("echo x")
    node.server.wait_event(key, "delivered")
    node.forget(key)
    assert agent.wait(20) == 0


def test_an_agent_whose_folder_was_removed_ends_its_ranks_and_itself(node: Harness) -> None:
    agent = node.start_agent()
    key = node.run("sleep 1000")
    pid = node.pids(key)[0]
    shutil.rmtree(node.paths.root)
    agent.wait(30)
    until(lambda: not alive(pid), what="the end of the rank")


def _new_nursery(node: Harness, before: int) -> bool:
    import psutil

    assert node.agent is not None
    children = psutil.Process(node.agent.pid).children()
    # Keepers of the dead nursery have its command line and are the agent's children now.
    return any(child.pid != before and is_nursery(child.pid) and _leads(child.pid) for child in children)


def _leads(pid: int) -> bool:
    from muster.host import processes

    process = processes.read(pid)
    return process is not None and not process.dead


@pytest.mark.parametrize("then", ["exit 1", "sleep 1000"])
def test_an_attempt_whose_folder_was_removed_says_so_whatever_its_ranks_do_then(node: Harness, then: str) -> None:
    node.start_agent()
    key = node.run(f"echo before; cd ..; until [ ! -e work ]; do sleep 0.02; done; echo after; {then}")
    node.wait_log(key, b"before")
    shutil.rmtree(node.paths.attempt(*key).root)
    refused = node.server.wait_event(key, "refused").data
    assert refused.code == "platform" and "clears up" in refused.next
    assert refused.message.startswith(f"the attempt's folder {node.paths.attempt(*key).root} was removed")
    node.server.wait_event(key, "delivered")
    kinds = [event.kind for event in node.server.events(key) if event.kind in ("refused", "exited")]
    assert kinds == ["refused", "exited"]
    later = node.run("echo later")
    node.server.wait_event(later, "delivered")
