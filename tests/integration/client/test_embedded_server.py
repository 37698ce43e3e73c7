"""The server that starts by itself: one, detached, replaced when it dies."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from muster.client.connect import connect
from muster.client.submit import submit
from muster.errors import ServerUnavailable
from muster.job.explain import make_spec
from muster.wire.stream import LogPiece, RunEnded


def server_pid(workspace: Path) -> int:
    return int(json.loads((workspace / ".muster/server/server.json").read_text())["pid"])


def test_twenty_clients_at_once_start_one_server(workspace: Path) -> None:
    with ThreadPoolExecutor(20) as pool:
        pids = list(pool.map(lambda _: connect().health().pid, range(20)))
    assert len(set(pids)) == 1
    assert (workspace / ".muster/server/server.log").read_text().count("serves workspace") == 1


def test_the_server_is_detached_from_whoever_started_it(workspace: Path) -> None:
    connect()
    server = psutil.Process(server_pid(workspace))
    assert server.ppid() != os.getpid()
    assert os.getsid(server.pid) != os.getsid(0)
    assert server.cwd() == "/"
    mine = {file.path for file in psutil.Process().open_files()}
    assert not mine & {file.path for file in server.open_files()}


def test_a_server_that_cannot_start_tells_its_last_words(workspace: Path) -> None:
    (workspace / ".muster/server").mkdir()
    (workspace / ".muster/server/muster.db").write_text("this is no database " * 500)
    with pytest.raises(ServerUnavailable, match="could not be started") as caught:
        connect()
    assert "not a database" in str(caught.value)
    assert str(workspace / ".muster/server/server.log") in caught.value.hint


def test_a_stream_loses_and_repeats_nothing_when_the_server_is_killed(workspace: Path) -> None:
    script = "for i in $(seq 1 200); do echo line $i; sleep 0.01; done"
    client = connect()
    run = submit(client, make_spec({"command": script}), workspace)
    received = b""
    killed = False
    status = ""
    for event, _ in client.stream(run.id):
        if isinstance(event, LogPiece):
            received += event.data
            if not killed:
                killed = True
                os.kill(server_pid(workspace), signal.SIGKILL)
        elif isinstance(event, RunEnded):
            status = event.status
    assert killed
    assert status == "Completed"
    assert received == b"".join(b"line %d\n" % i for i in range(1, 201))


def test_a_call_after_the_server_was_killed_starts_another(workspace: Path) -> None:
    client = connect()
    first = client.health().pid
    os.kill(first, signal.SIGKILL)
    assert client.runs() == []
    assert client.health().pid != first


def test_the_same_key_is_the_same_run(workspace: Path) -> None:
    client = connect()
    spec = make_spec({"command": ["true"]})
    first, second = (submit(client, spec, workspace, key="k") for _ in range(2))
    assert first.id == second.id
    deadline = time.monotonic() + 30
    while client.run(first.id).status != "Completed" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(client.runs()) == 1
