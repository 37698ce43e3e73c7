"""What the keeper does for an MPI job: who may have a daemon started, what it hears, how silence is told."""

from __future__ import annotations

import json
import marshal
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import wait_until

from muster.agent.run.mpi import rank as rank_program
from muster.agent.run.mpi.coordinator import MpiCoordinator
from muster.agent.run.mpi.remote import answer
from muster.agent.run.records import LaunchMpi

SECRET = "s" * 64


@pytest.fixture
def side(tmp_path: Path) -> Iterator[MpiCoordinator]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    made = MpiCoordinator(
        LaunchMpi(
            fifo=str(tmp_path / "fifo"),
            ranks=(2, 3),
            listen=("127.0.0.1", port),
            secret=SECRET,
            daemon_env={"PATH": os.defpath},
            daemon_log=str(tmp_path / "daemon.log"),
            hostname=None,
            pmix=None,
        )
    )
    yield made
    if made._listener is not None:
        made._listener.close()
    if made._asker is not None:
        made._asker.close()
    for caller in made._callers.values():
        caller.line.close()
    os.close(made._fifo)


def serve_until(side: MpiCoordinator, condition: Any) -> None:
    def step() -> Any:
        side.serve(select.select(side.descriptors(), [], [], 0.05)[0])
        return condition()

    wait_until(step, 5.0, "an answer of the keeper's side")


def ask(side: MpiCoordinator, command: str, secret: str) -> socket.socket:
    assert side.listen is not None
    line = socket.create_connection(side.listen)
    serve_until(side, lambda: side._callers)
    challenge = line.recv(1000).decode().strip()
    line.sendall(json.dumps({"command": command, "proof": answer(secret, challenge, command)}).encode() + b"\n")
    serve_until(side, lambda: not side._callers)
    return line


def test_a_caller_with_the_secret_gets_its_daemon_and_its_exit(side: MpiCoordinator) -> None:
    with ask(side, "echo hello; exit 3", SECRET) as line:
        assert side.daemon is not None
        pid, status = os.waitpid(side.daemon, 0)
        assert side.reaped(pid, status)
        said = [json.loads(text) for text in line.makefile()]
    assert said == [{"kind": "daemon"}, {"kind": "exited", "code": 3, "output": "hello\n"}]


GARBAGE = (
    b"{}\n",
    b"\xff\xfe\n",
    b"[" * 100_000 + b"\n",
    '{"command": "true", "proof": "ü"}\n'.encode(),
    b'{"command": "true", "proof": ""}\n',
    b"[1]\n",
)


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_whoever_sends_something_else_gets_nothing(side: MpiCoordinator, garbage: bytes) -> None:
    assert side.listen is not None
    with socket.create_connection(side.listen) as line:
        serve_until(side, lambda: side._callers)
        line.sendall(garbage)
        serve_until(side, lambda: not side._callers)
    assert side.daemon is None


def test_another_secret_opens_nothing(side: MpiCoordinator) -> None:
    with ask(side, "true", "t" * 64) as line:
        assert side.daemon is None
        assert line.recv(1000) == b""


def test_an_answer_holds_for_one_challenge_and_one_command() -> None:
    assert (
        len({answer(SECRET, "a", "x"), answer(SECRET, "b", "x"), answer(SECRET, "a", "y"), answer("u", "a", "x")}) == 4
    )


def test_what_is_no_word_of_a_wrapper_is_not_heard(side: MpiCoordinator, tmp_path: Path) -> None:
    with (tmp_path / "fifo").open("ab", buffering=0) as fifo:
        fifo.write(b'garbage\n{"rank": 9, "kind": "exited"}\n[]\n{"rank": 2, "kind": "interrupted"}\n')
        assert side.hear() == [{"rank": 2, "kind": "interrupted"}]


def test_a_taken_port_is_trouble_that_names_it(side: MpiCoordinator, tmp_path: Path) -> None:
    assert side.listen is not None
    other = MpiCoordinator(
        LaunchMpi(
            fifo=str(tmp_path / "other"),
            ranks=(0,),
            listen=side.listen,
            secret="",
            daemon_env={},
            daemon_log="",
            hostname=None,
            pmix=None,
        )
    )
    os.close(other._fifo)
    assert f"port {side.listen[1]}" in other.trouble


def wrapper(tmp_path: Path, argv: list[str], number: str = "1", expand: bool = True) -> tuple[int, str, list[Any]]:
    """Run the process in front of a rank as mpirun would; returns its exit code, the log, and what it said."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    rank = {"argv": argv, "expand": expand, "env": {"GREETING": "hi"}, "cwd": "/", "log": str(tmp_path / "log")}
    library = str(Path(rank_program.__file__).parents[4])
    node = {"name": "n", "fifo": str(fifo), "stop_file": str(tmp_path / "stop"), "library": library}
    (tmp_path / "ranks").write_bytes(marshal.dumps({**node, "ranks": {"1": rank}}))
    done = subprocess.run(
        [sys.executable, "-I", "-S", rank_program.__file__, str(tmp_path / "ranks")],
        env={"PMI_RANK": number, "PATH": os.defpath},
        capture_output=True,
    )
    try:
        said = [json.loads(line) for line in os.read(reader, 65536).splitlines()]
    except BlockingIOError:
        said = []
    os.close(reader)
    log = (tmp_path / "log").read_text() if (tmp_path / "log").exists() else done.stdout.decode()
    return done.returncode, log, said


def test_a_rank_is_expanded_logged_and_recorded(tmp_path: Path) -> None:
    code, log, said = wrapper(tmp_path, ["/bin/echo", "$GREETING", "rank $PMI_RANK", "$$1"])
    assert (code, log) == (0, "hi rank 1 $1\n")
    assert [(entry["kind"], entry["rank"]) for entry in said] == [("started", 1), ("exited", 1)]
    assert said[1]["status"] == 0


@pytest.mark.parametrize(
    ("argv", "word"), [(["no-such-program"], "no-such-program"), (["/bin/echo", "$NOWHERE"], "NOWHERE")]
)
def test_a_rank_that_cannot_start_says_why(tmp_path: Path, argv: list[str], word: str) -> None:
    code, log, said = wrapper(tmp_path, argv)
    assert code in (126, 127)
    assert [entry["kind"] for entry in said] == ["refused"]
    assert word in log
    assert word in said[0]["message"]


def test_a_rank_that_belongs_to_another_node_is_not_run(tmp_path: Path) -> None:
    code, log, said = wrapper(tmp_path, ["true"], number="7")
    assert (code, said) == (126, [])
    assert "rank 7" in log
