"""A real agent in front of a fake server, with real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.sites.agent_server import AgentServer

from muster.agent.run.variables import NODE_MARK
from muster.host import processes
from muster.paths import NodePaths
from muster.wire.codec import to_json
from muster.wire.node.agents import Order
from muster.wire.node.plan import NodePlan, RankPlan


def until(condition: Callable[[], Any], timeout_s: float = 20.0, what: str = "the condition") -> Any:
    """Wait for a condition with a deadline."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come true")
        time.sleep(0.005)
    return value


class Harness:
    """One node: its folder, its server, its agent."""

    def __init__(self, folder: Path) -> None:
        self.paths = NodePaths(folder / "node")
        self.server = AgentServer(folder / "s")
        self.server.start()
        self.agent: subprocess.Popen[bytes] | None = None
        self.mark = ""
        self.next_run = 0

    def start_agent(self, **config: Any) -> subprocess.Popen[bytes]:
        self.paths.root.mkdir(parents=True, exist_ok=True)
        settings = {
            "node": "n0",
            "cluster": "local",
            "root": str(self.paths.root),
            "server": [self.server.url],
            "token": "t",
            **config,
        }
        self.paths.config.write_text(json.dumps(settings))
        known = len(self.server.kept.hellos)
        self.agent = subprocess.Popen(
            [sys.executable, "-m", "muster.agent", str(self.paths.config)],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        if self.server.serving:
            self.server.wait(lambda kept: len(kept.hellos) > known, what="hello")
        return self.agent

    def kill_agent(self) -> None:
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait()

    def run(self, *commands: str | Sequence[str], action: str = "prepare", **order: Any) -> tuple[str, int]:
        """Order an attempt whose ranks are these commands (text runs under bash); returns its key."""
        self.next_run += 1
        order = {"run": f"run{self.next_run}", "attempt": 1, **order}
        self.server.order(Order(action=action, plan=plan_of(*commands), **order))
        return (order["run"], order["attempt"])

    def stop(self, key: tuple[str, int], grace_s: float = 30.0, reason: str = "cancelled") -> None:
        self.server.order(Order(run=key[0], attempt=key[1], action="stop", grace_s=grace_s, stop_reason=reason))

    def forget(self, key: tuple[str, int]) -> None:
        self.server.order(Order(run=key[0], attempt=key[1], action="forget"))
        until(lambda: not self.paths.attempt(*key).root.exists(), what=f"{key} forgotten")

    def log(self, key: tuple[str, int], rank: int = 0) -> bytes:
        return self.server.stream(key, f"user_logs/std_log_process_{rank}.txt")

    def wait_log(self, key: tuple[str, int], text: bytes, rank: int = 0) -> bytes:
        name = (*key, f"user_logs/std_log_process_{rank}.txt")
        return bytes(
            self.server.wait(lambda kept: text in (got := kept.streams.get(name, b"")) and got, what=repr(text))
        )

    def pids(self, key: tuple[str, int]) -> dict[int, int]:
        started = self.server.wait_event(key, "started")
        return {rank.rank: rank.pid for rank in started.data.ranks}

    def keeper(self, key: tuple[str, int]) -> int:
        pid = psutil.Process(self.pids(key)[0]).ppid()
        assert "muster.agent.run.nursery" in processes.command_line(pid)
        return pid

    def nursery(self) -> int:
        assert self.agent is not None
        children = psutil.Process(self.agent.pid).children()
        return next(child.pid for child in children if child.ppid() == self.agent.pid and is_nursery(child.pid))

    def exits(self, key: tuple[str, int]) -> dict[int, dict[str, Any]]:
        return {event.data.rank: to_json(event.data) for event in self.server.events(key, "exited")}

    def marked(self) -> list[int]:
        """Processes of this node, apart from the agent."""
        import hashlib

        mark = hashlib.sha256(str(self.paths.root.resolve()).encode()).hexdigest()[:16]
        return processes.marked(NODE_MARK, mark)

    def close(self) -> None:
        if self.agent is not None and self.agent.poll() is None:
            self.agent.send_signal(signal.SIGTERM)
            self.agent.send_signal(signal.SIGTERM)
            try:
                self.agent.wait(15)
            except subprocess.TimeoutExpired:
                self.agent.kill()
                self.agent.wait()
                raise
            finally:
                self.server.stop()
        self.server.stop()
        until(lambda: not self.marked(), what="the end of every process of the node")


def is_nursery(pid: int) -> bool:
    return "muster.agent.run.nursery" in processes.command_line(pid)


def plan_of(*commands: str | Sequence[str]) -> NodePlan:
    ranks = tuple(
        RankPlan(
            rank=number,
            node_rank=0,
            local_rank=number,
            argv=("bash", "-c", command) if isinstance(command, str) else tuple(command),
            env={"RANK": str(number), "PYTHONUNBUFFERED": "1"},
            log=f"user_logs/std_log_process_{number}.txt",
            expand=not isinstance(command, str),
        )
        for number, command in enumerate(commands)
    )
    return NodePlan(0, "n0", "127.0.0.1", (), ranks)


def alive(pid: int) -> bool:
    process = processes.read(pid)
    return process is not None and not process.dead


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="ma-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def node(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    for name in [name for name in os.environ if name.startswith(("PYTHONUNBUFFERED", "PYTHONDONTWRITE", "MUSTER_"))]:
        monkeypatch.delenv(name)
    harness = Harness(folder)
    try:
        yield harness
    finally:
        harness.close()
