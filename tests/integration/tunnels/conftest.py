"""A workspace with a run of two ranks, each of which listens on a port and waits at a place of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.conftest import _end_workspace as end_workspace
from tests.conftest import wait_until
from tests.integration.cli.conftest import Cli, Terminal
from tests.integration.server.conftest import Site, site

from muster.client.connect import connect
from muster.client.workspace import create_workspace
from muster.host import frames
from muster.wire.tunnels import TunnelTarget

__all__ = ["Site", "Terminal", "site"]

# Echoes what it is sent on its own port; a connection that begins with a number gets so many megabytes.
RANKS = """
import os, socket, threading, time

def serve():
    listener = socket.create_server(("127.0.0.1", 0))
    with open(f"port_{os.environ['RANK']}.part", "w") as file:
        file.write(str(listener.getsockname()[1]))
    os.rename(file.name, file.name[:-5])
    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

def answer(line):
    first = line.recv(100)
    if first.isdigit():
        for _ in range(int(first)):
            line.sendall(bytes(1 << 20))
    else:
        while first:
            line.sendall(first)
            first = line.recv(1 << 18)
    line.close()

def compute():
    time.sleep(3600)

def fetch():
    time.sleep(3600)

threading.Thread(target=serve, daemon=True).start()
compute() if os.environ["RANK"] == "0" else fetch()
"""


class Running:
    """The run, and ways into it."""

    def __init__(self, site: Site, run: str) -> None:
        self.site = site
        self.id = run

    @property
    def cli(self) -> Cli:
        """The command line in its workspace."""
        return Cli(self.site.folder)

    def port(self, rank: int) -> int:
        """Where a rank listens; asked through a tunnel."""
        return int(wait_until(lambda: self.output("cat", f"port_{rank}", rank=rank), what=f"the port of rank {rank}"))

    def output(self, *command: str, rank: int = 0) -> str:
        done = self.shell(*command, rank=rank)
        return done.stdout if done.returncode == 0 else ""

    def shell(self, *command: str, rank: int = 0, **options: Any) -> subprocess.CompletedProcess[str]:
        settings: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 60, "check": False}
        settings["cwd"] = self.site.folder
        if "input" not in options:
            settings["stdin"] = subprocess.DEVNULL
        words = ["shell", self.id, "--rank", str(rank), "--", *command]
        return subprocess.run([sys.executable, "-m", "muster.cli", *words], **{**settings, **options})

    def open(self, port: int, rank: int = 0) -> socket.socket:
        """A tunnel to a port, raw: frames go through it."""
        return self.site.client.open_tunnel(self.id, TunnelTarget("port", rank, port=port)).connection

    def sessions(self) -> set[int]:
        """Processes that keepers have forked for tunnels."""
        found = set()
        for rank in range(2):
            for child in self.site.keeper(self.id, rank).children():
                with suppress(psutil.NoSuchProcess):  # it may end in this moment
                    if child.name() == "muster-session":
                        found.add(child.pid)
        return found


def started(site: Site) -> Running:
    """The run, once both ranks are there."""
    (site.folder / "ranks.py").write_text(RANKS)
    distribution = {"type": "pytorch", "process_count_per_instance": 2}
    run = site.run(command=["python", "ranks.py"], code=".", distribution=distribution)
    site.wait(run, "Running")
    wait_until(lambda: all(rank["pid"] for rank in site.view(run)["attempts"][-1]["ranks"]), what="both ranks")
    return Running(site, run)


def ended(running: Running) -> None:
    running.site.client.cancel(running.id, force=True)
    running.site.wait(running.id)


@pytest.fixture(scope="session")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One run for all tests that leave it alone: starting a workspace takes longer than most of them."""
    folder = tmp_path_factory.mktemp("t")
    client = connect(create_workspace(folder, "tunnels"))
    running = started(Site(folder, client))
    yield running
    ended(running)
    client.close()
    end_workspace(folder)


@pytest.fixture
def running(shared_run: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    monkeypatch.chdir(shared_run.site.folder)
    return shared_run


@pytest.fixture
def own_run(site: Site) -> Iterator[Running]:
    """A run that a test may end, with its server and its agent."""
    running = started(site)
    yield running
    ended(running)


@pytest.fixture
def terminal(running: Running) -> Iterator[Callable[..., Terminal]]:
    """Starts commands on terminals of their own, in the workspace of the run that is shared."""
    opened: list[Terminal] = []

    def start(*args: str, **environment: str) -> Terminal:
        opened.append(Terminal(running.site.folder, args, environment))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def echoed(line: socket.socket, data: bytes) -> bytes:
    """What comes back through a raw tunnel until the other side has ended."""
    line.settimeout(30)
    line.sendall(frames.frame(frames.DATA, data) + frames.frame(frames.END))
    decoder, kept = frames.Decoder(), bytearray()
    with closing(line):
        while piece := line.recv(1 << 16):
            for kind, part in decoder.pieces(memoryview(piece)):
                if kind == frames.DATA:
                    kept += part
                elif kind == frames.EXIT:
                    return bytes(kept)
                elif kind == frames.TROUBLE:
                    raise AssertionError(bytes(part).decode())
    raise AssertionError(f"cut after {len(kept)} bytes")


def memory_mb(pid: int) -> float:
    """What a process has of its own, in MB."""
    with Path(f"/proc/{pid}/smaps_rollup").open() as file:
        lines = dict(line.split(":", 1) for line in file if ":" in line)
    return sum(int(lines[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")) / 1024


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
