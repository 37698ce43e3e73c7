"""Where gangs run while they meet faults: a workspace on some engine, warm between faults."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.chaos.checks import Leftovers
from tests.chaos.record import RANK, Record
from tests.chaos.waiting import PATIENCE_S, Stuck, until

from muster.client.api import Client
from muster.client.connect import connect
from muster.client.submit import submit
from muster.client.workspace import create_workspace, find_workspace
from muster.errors import MusterError
from muster.job.explain import make_spec
from muster.wire import states
from muster.wire.codec import Json
from muster.wire.runs import RankView, RunView

MUSTER = Path(sys.executable).with_name("muster")


@dataclass
class Gang:
    """Processes of one rank's node, as they are before the fault."""

    rank: psutil.Process
    keeper: psutil.Process
    nursery: psutil.Process
    agent: psutil.Process


@dataclass
class Stage:
    """One workspace; subclasses say which engine and which disk it is on."""

    home: Path
    """Everything of the stage, in a short path."""
    name: str = "local"
    engine: str = "local"
    compute: Mapping[str, Json] = field(default_factory=dict)
    """What a job needs to run here."""

    def __post_init__(self) -> None:
        self.record = Record(self.home / "record")
        self.folder = self.home / "w"
        self._stack = contextlib.ExitStack()

    # Its life

    def open(self) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "src").mkdir()
        (self.folder / "src" / "rank.py").write_text(RANK)
        self.configure()
        self.client = connect(find_workspace(self.folder))
        self.join()

    def configure(self) -> None:
        """Make the workspace, before its first server starts."""
        create_workspace(self.folder, "chaos")

    def join(self) -> None:
        """Make the cluster, once there is a server."""

    def close(self) -> list[str]:
        """End everything; what was left that should not be."""
        try:
            # Without a client it has never been open.
            return [*self._end_server(), *self._left()] if hasattr(self, "client") else []
        finally:
            self._stack.close()

    def _end_server(self) -> list[str]:
        with contextlib.suppress(MusterError, Stuck):
            active = [run.id for run in self.client.runs() if run.status not in states.TERMINAL]
            for run_id in active:
                self.client.cancel(run_id, force=True)
            # A server that is ended while a run is active leaves its agents there, for the next one.
            for run_id in active:
                self.wait_for_end(run_id, 60.0)
        with contextlib.suppress(MusterError):
            self.client.shutdown(force=True)
        try:
            until(lambda: not processes_of(self.folder), "the end of the workspace's processes", 60.0)
        except Stuck:
            left = processes_of(self.folder)
            described = [f"{item.pid} {' '.join(item.cmdline())[:100]}" for item in left]
            for item in left:
                with contextlib.suppress(psutil.Error):
                    item.kill()
            return [f"left after `muster down`: {described}"]
        return []

    def _left(self) -> list[str]:
        """Leftovers of the whole stage, beside those of runs."""
        return []

    @property
    def leftovers(self) -> Leftovers:
        return Leftovers(self.folder / ".muster" / "nodes")

    # Its runs

    def submit(self, command: str, nodes: int, ranks: int, **more: Any) -> str:
        shape = {
            "distribution": {"type": "pytorch", "process_count_per_instance": ranks},
            "resources": {"instance_count": nodes},
        }
        job = {"code": "./src", "command": command, **shape, **self.compute, **more}
        run_id = submit(self.client, make_spec(job), self.folder, python=sys.executable).id
        self.record.submitted.append(run_id)
        return run_id

    def wait(self, run_id: str, condition: Callable[[RunView], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
        """Until that holds of the run, or it has ended."""

        def holds() -> Any:
            view = self.client.run(run_id)
            return condition(view) or view.status in states.TERMINAL

        return until(holds, f"{what} of {run_id}", patience_s)

    def wait_for_end(self, run_id: str, patience_s: float = PATIENCE_S) -> RunView:
        self.wait(run_id, lambda view: False, "the end", patience_s)
        return self.client.run(run_id)

    # Its processes

    def server(self) -> psutil.Process:
        return psutil.Process(self.client.health().pid)

    def ranks(self, run_id: str) -> list[RankView]:
        """The ranks of the current attempt, once all of them run."""

        def running() -> list[RankView] | None:
            attempts = self.client.run(run_id).attempts
            ranks = list(attempts[-1].ranks) if attempts else []
            return ranks if ranks and all(rank.pid for rank in ranks) else None

        return until(running, f"the ranks of {run_id}")

    def gang(self, run_id: str, rank: int) -> Gang:
        process = psutil.Process(self.ranks(run_id)[rank].pid)
        keeper = process.parent()
        nursery = keeper.parent() if keeper else None
        agent = nursery.parent() if nursery else None
        if keeper is None or nursery is None or agent is None:
            raise Stuck(f"the parents of rank {rank} of {run_id} cannot be found")
        return Gang(process, keeper, nursery, agent)


def processes_of(folder: Path) -> list[psutil.Process]:
    """Living processes that name the folder in their command line or environment."""
    needle, found = str(folder).encode(), []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            told = b"".join(Path(f"/proc/{process.pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
            if needle in told and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (OSError, psutil.Error):
            continue
    return found


@contextlib.contextmanager
def home() -> Iterator[Path]:
    """A short private folder; HOME and the folder of sockets are in it, so that nothing of the user's is touched."""
    folder = Path(tempfile.mkdtemp(prefix="mch-", dir="/tmp"))
    kept = dict(os.environ)
    for variable, name in (("HOME", "home"), ("XDG_RUNTIME_DIR", "run")):
        (folder / name).mkdir(mode=0o700)
        os.environ[variable] = str(folder / name)
    os.environ.setdefault("MUSTER_IDLE_EXIT_S", "300")
    here = Path.cwd()
    os.chdir(folder)
    try:
        yield folder
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(kept)
        shutil.rmtree(folder, ignore_errors=True)


def quiet(*command: str | Path, check: bool = True, folder: Path | None = None) -> str:
    """What a program prints."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{command} failed: {done.stdout}{done.stderr}")
    return done.stdout


__all__ = ["MUSTER", "Client", "Gang", "Stage", "home", "processes_of", "quiet"]
