"""Every byte once and in order, whatever the ranks print and whatever the server does."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess

import pytest

from .conftest import Harness, alive, until


def test_output_that_is_not_utf_8_arrives_as_it_was(node: Harness) -> None:
    node.start_agent()
    key = node.run(r"printf '\xff\xfe\x00\x80abc\r\n'; printf 'no newline at the end' >&2")
    node.server.wait_event(key, "delivered")
    assert node.log(key) == b"\xff\xfe\x00\x80abc\r\nno newline at the end"


def test_one_line_of_50_megabytes_arrives_whole(node: Harness) -> None:
    node.start_agent()
    key = node.run("head -c 52428800 /dev/zero | tr '\\0' x; echo; echo end")
    node.server.wait_event(key, "delivered", timeout_s=60)
    assert node.log(key) == b"x" * 52428800 + b"\nend\n"


def test_a_log_takes_no_disk_behind_what_was_delivered(node: Harness) -> None:
    node.start_agent()
    key = node.run("head -c 20971520 /dev/urandom; echo ready >&2; until [ -e go ]; do sleep 0.02; done")
    log = node.paths.attempt(*key).streams / "user_logs/std_log_process_0.txt"
    node.wait_log(key, b"ready")
    if log.stat().st_size < 20971520:
        pytest.fail("the log changed its length")
    until(lambda: log.stat().st_blocks * 512 <= 2 << 20, what="the blocks to be given back")
    (node.paths.attempt(*key).work / "go").touch()
    node.server.wait_event(key, "delivered")
    assert len(node.log(key)) == 20971520 + len(b"ready\n")


def test_a_log_past_its_limit_is_cut_with_a_visible_mark(node: Harness) -> None:
    node.start_agent()
    key = node.run("head -c 3000000 /dev/zero | tr '\\0' y; echo; echo end", log_limit_bytes=1 << 20)
    node.server.wait_event(key, "delivered")
    log = node.log(key)
    assert log[: 1 << 20] == b"y" * (1 << 20)
    assert b"passed its limit of 1048576 bytes" in log[1 << 20 :]
    assert len(log) < (1 << 20) + 200


def test_a_log_that_a_rank_truncates_goes_on(node: Harness) -> None:
    node.start_agent()
    key = node.run("echo first line; until [ -e go ]; do sleep 0.02; done; echo second > /dev/stderr; echo third")
    node.wait_log(key, b"first line\n")
    (node.paths.attempt(*key).work / "go").touch()
    node.server.wait_event(key, "delivered")
    assert node.log(key) == b"first line\nsecond\nthird\n"


def test_a_whole_run_without_a_server_is_delivered_when_it_is_back(node: Harness) -> None:
    node.start_agent()
    key = node.run("until [ -e go ]; do sleep 0.01; done; seq 1 100000; echo kept > outputs/f; exit 7")
    pid = node.pids(key)[0]
    node.server.stop()
    (node.paths.attempt(*key).work / "go").touch()
    until(lambda: not alive(pid), what="the end of the rank")
    node.server.start()
    node.server.wait_event(key, "delivered")
    assert node.log(key) == "".join(f"{number}\n" for number in range(1, 100001)).encode()
    assert node.exits(key)[0]["exit_code"] == 7
    assert node.server.kept.files[(*key, "outputs/f")] == b"kept\n"


def test_answers_that_are_lost_double_nothing(node: Harness) -> None:
    node.start_agent()
    node.server.lose_answers = 8
    node.server.lose_requests = 3
    key = node.run("for i in $(seq 1 40); do echo line $i; sleep 0.02; done")
    node.server.wait_event(key, "delivered")
    assert node.log(key) == "".join(f"line {number}\n" for number in range(1, 41)).encode()
    assert node.server.kept.received_events > len(node.server.events(key)), "nothing was sent twice"
    kinds = [event.kind for event in node.server.events(key)]
    assert kinds == ["prepared", "started", "exited", "ended", "delivered"]


def test_a_server_that_forgot_the_agent_is_told_again(node: Harness) -> None:
    node.start_agent()
    node.server.unknown_agents = 1
    key = node.run("echo x")
    node.server.wait_event(key, "delivered")
    assert len(node.server.kept.hellos) == 2


def test_a_server_that_comes_and_goes_gets_every_byte_once(node: Harness) -> None:
    node.start_agent()
    key = node.run(
        "for i in $(seq 1 60); do head -c 30011 /dev/urandom | base64 -w 0; echo; sleep 0.02; done | tee copy"
    )
    for _ in range(4):
        known = node.server.kept.received_chunks
        node.server.wait(lambda kept, known=known: kept.received_chunks > known + 2, what="bytes")
        node.server.stop()
        node.server.start()
    node.server.wait_event(key, "delivered")
    copy = (node.paths.attempt(*key).work / "copy").read_bytes()
    assert hashlib.sha256(node.log(key)).digest() == hashlib.sha256(copy).digest()


def test_bytes_survive_an_agent_that_dies_again_and_again(node: Harness) -> None:
    """What was printed before each death is there in full, also what was punched out of the file meanwhile."""
    node.start_agent()
    keys = []
    for _ in range(3):
        key = node.run("head -c 5000000 /dev/zero | tr '\\0' z | tee copy; echo ready >&2; sleep 1000")
        node.wait_log(key, b"ready")
        keys.append(key)
        node.kill_agent()
        node.start_agent()
    for key in keys:
        node.server.wait_event(key, "delivered")
        assert node.log(key) == b"z" * 5000000 + b"ready\n"


def test_metrics_arrive_once_and_in_order_with_samples_of_the_node(node: Harness) -> None:
    import json

    node.start_agent()
    key = node.run(
        'for i in $(seq 1 200); do echo "{\\"kind\\": \\"metric\\", \\"step\\": $i}" >> $MUSTER_EVENTS_FILE; done; '
        "until [ -s $(dirname $MUSTER_EVENTS_FILE)/node_0.jsonl ]; do sleep 0.05; done"
    )
    node.server.wait_event(key, "delivered")
    steps = [json.loads(line)["step"] for line in node.server.stream(key, "events/rank_0.jsonl").splitlines()]
    assert steps == list(range(1, 201))
    samples = [json.loads(line) for line in node.server.stream(key, "events/node_0.jsonl").splitlines()]
    assert {"node/cpu_percent", "node/memory_percent"} <= {sample["name"] for sample in samples}
    assert all(sample["kind"] == "metric" and sample["type"] == "scalar" for sample in samples)


def test_files_are_delivered_with_odd_names_and_without_escaping(node: Harness) -> None:
    node.start_agent()
    key = node.run(
        "mkdir -p outputs/a/b; echo deep > outputs/a/b/c; echo log > logs/l; echo up > $MUSTER_UPLOADS_DIR/u.txt;"
        r"printf x > $'outputs/caf\xe9'; ln -s /etc/passwd outputs/passwd; ln -s a outputs/link; ln -s . outputs/loop;"
        "mkfifo outputs/pipe; head -c 3000000 /dev/urandom > outputs/big; : > outputs/empty; cp outputs/big big"
    )
    delivered = node.server.wait_event(key, "delivered")
    files = {name: content for (run, attempt, name), content in node.server.kept.files.items() if (run, attempt) == key}
    assert files["outputs/a/b/c"] == b"deep\n"
    assert files["outputs/link/b/c"] == b"deep\n"
    assert files["logs/l"] == b"log\n"
    assert files["u.txt"] == b"up\n"
    assert files["outputs/caf\\xe9"] == b"x"
    assert files["outputs/empty"] == b""
    assert files["outputs/big"] == (node.paths.attempt(*key).work / "big").read_bytes()
    assert {item.path for item in delivered.data.files} == set(files)
    left_out = " ".join(delivered.data.notes)
    assert "outputs/passwd: a link that leaves" in left_out
    assert "outputs/loop: a link to a folder that holds it" in left_out
    assert "outputs/pipe: not a regular file" in left_out


def test_many_files_are_sent_together_and_what_is_refused_or_unreadable_holds_up_no_other(node: Harness) -> None:
    node.start_agent()
    node.server.refused_files.add("outputs/77")
    key = node.run(
        "for i in $(seq 1 600); do echo $i > outputs/$i; done; head -c 300000 /dev/zero > outputs/large;"
        "until [ -e go ]; do sleep 0.02; done"
    )
    node.server.wait_event(key, "started")
    (node.paths.attempt(*key).work / "go").touch()
    delivered = node.server.wait_event(key, "delivered")
    kept = {name.removeprefix("outputs/"): content for (_, _, name), content in node.server.kept.files.items()}
    assert len(kept.pop("large")) == 300000
    assert kept == {str(i): b"%d\n" % i for i in range(1, 601) if i != 77}
    assert {file.path for file in delivered.data.files} == {f"outputs/{name}" for name in (*kept, "large")}
    assert delivered.data.notes == ("not kept: outputs/77: the server refuses it: no such name",)
    assert delivered.data.undelivered is None
    assert node.server.kept.file_calls <= 5


def test_a_delivery_can_be_cancelled_and_what_is_missing_is_said(node: Harness) -> None:
    node.start_agent()
    node.server.takes_files.clear()
    key = node.run("for i in $(seq 1 2000); do : > outputs/$i; done; echo printed")
    node.server.wait(lambda kept: kept.file_calls, what="the first files")
    assert not node.server.events(key, "delivered")
    node.stop(key, grace_s=0.0, reason="abandoned")
    until(lambda: node.server.kept.orders_seen >= node.server.kept.version, what="the agent's having heard it")
    node.server.takes_files.set()
    undelivered = node.server.wait_event(key, "delivered").data.undelivered
    assert undelivered.code == "cancelled" and undelivered.late
    count = len(node.server.kept.files)
    assert undelivered.message == f"not delivered: {2000 - count:,} of 2,000 files"
    assert 0 < count < 2000
    assert node.log(key) == b"printed\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="a small filesystem of its own needs root")
def test_a_full_disk_ends_the_job_and_not_the_agent(node: Harness) -> None:
    node.paths.root.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(node.paths.root)], check=False)
    if mounted.returncode != 0:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        agent = node.start_agent()
        key = node.run("echo before; head -c 50000000 /dev/zero > filler || { echo full; exit 9; }")
        node.server.wait_event(key, "ended")
        node.server.wait_event(key, "delivered")
        assert node.exits(key)[0]["exit_code"] == 9
        refused = node.run("echo never")
        event = node.server.wait_event(refused, "refused")
        assert event.data.code == "disk_full"
        assert str(node.paths.root) in event.data.message
        node.server.wait_event(refused, "delivered")
        node.forget(key)
        node.forget(refused)
        again = node.run("echo again")
        node.server.wait_event(again, "delivered")
        assert node.log(again) == b"again\n"
        agent.send_signal(signal.SIGTERM)
        agent.wait(20)
        until(lambda: not node.marked(), what="the end of the node")
    finally:
        subprocess.run(["umount", "-l", str(node.paths.root)], check=True)
