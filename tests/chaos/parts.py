"""What the server and agents stand on: descriptors, memory, the database, folders, and the server's own version."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
from tests.chaos.checks import Expected
from tests.chaos.processes import pause
from tests.chaos.stage import Stage
from tests.chaos.trial import Fault, Scene
from tests.chaos.waiting import until

import muster
from muster.client.connect import connect
from muster.client.workspace import find_workspace
from muster.errors import MusterError

_HELD = ("begun", "middle", "last")
_MOST_S = 3.0

COUNTING = """
import os, signal, sys
from muster.server.database import writer
left, when = int(sys.argv.pop(1)), sys.argv.pop(1)
commit, call = writer.Writer._commit, writer._call

def end(moment):
    if left == 0 and when == moment:
        os.kill(os.getpid(), signal.SIGKILL)

def counted(self, items):
    global left
    left -= bool(items)
    end("before")
    commit(self, items)
    end("after")

def between(hook):
    end("between")
    call(hook)

writer.Writer._commit, writer._call = counted, between
from muster.server.main import main
main()
"""


def start_server(stage: Stage, *command: str, python_path: Path | None = None) -> subprocess.Popen[bytes]:
    """A server of the harness's own instead of the one that runs; it is nobody's child once it is killed."""
    running = stage.server()
    with contextlib.suppress(MusterError):
        stage.client.shutdown(force=True)
    until(lambda: not running.is_running() or running.status() == psutil.STATUS_ZOMBIE, "the end of the server", 60.0)
    environment = {**os.environ, **({"PYTHONPATH": str(python_path)} if python_path else {})}
    words = [sys.executable, *command, "--workspace", str(stage.folder / ".muster")]
    with (stage.home / "server.out").open("ab") as log:
        process = subprocess.Popen(
            words, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    info = stage.folder / ".muster/server/server.json"
    until(lambda: process.poll() is not None or (info.exists() and str(process.pid) in info.read_text()), "a server")
    stage.client = connect(find_workspace(stage.folder))
    return process


def reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for it in the background, so that it is no zombie."""
    threading.Thread(target=process.wait, daemon=True).start()


def server_killed_at_a_write(scene: Scene) -> Expected:
    return Expected()


def count_writes(stage: Stage, chance: random.Random) -> None:
    number, moment = chance.randint(2, 45), chance.choice(("before", "between", "after"))
    reap(start_server(stage, "-c", COUNTING, str(number), moment))


def server_upgraded(scene: Scene) -> Expected:
    """A server of the next version takes the run over."""
    stage = scene.stage
    copy = stage.home / "next"
    if not copy.exists():
        source = Path(muster.__file__).parent
        shutil.copytree(source, copy / "muster", ignore=shutil.ignore_patterns("__pycache__"))
        (copy / "muster" / "version.py").write_text('VERSION = "9.9.9"\n')
    process = start_server(stage, "-m", "muster.server", python_path=copy)
    reap(process)
    version = stage.client.health().version
    if version != "9.9.9":
        raise RuntimeError(f"the next version did not start: {version}")
    return Expected()


def descriptors_of_server(scene: Scene) -> Expected:
    exhaust(scene, scene.stage.server(), resource.RLIMIT_NOFILE)
    return Expected()


def descriptors_of_agent(scene: Scene) -> Expected:
    exhaust(scene, scene.stage.gang(scene.run_id, scene.any_rank()).agent, resource.RLIMIT_NOFILE)
    return Expected()


def memory_of_server(scene: Scene) -> Expected:
    exhaust(scene, scene.stage.server(), resource.RLIMIT_AS)
    return Expected()


def memory_of_agent(scene: Scene) -> Expected:
    """It goes on, or ends and its node with it."""
    exhaust(scene, scene.stage.gang(scene.run_id, scene.any_rank()).agent, resource.RLIMIT_AS)
    return Expected(("node_lost", "platform"), retried=scene.retried, exact=False)


def exhaust(scene: Scene, process: psutil.Process, which: int) -> None:
    """For a while the process gets nothing more of its kind."""
    before = process.rlimit(which)
    used = process.num_fds() if which == resource.RLIMIT_NOFILE else process.memory_info().vms
    process.rlimit(which, (used + 1, before[1]))

    def restore() -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.rlimit(which, before)

    timer = threading.Timer(scene.chance.uniform(0.5, _MOST_S), restore)
    timer.start()
    scene.undo.append(timer.join)


def database_locked(scene: Scene) -> Expected:
    """Somebody looks into the database with a tool and holds it."""
    file, seconds = scene.stage.folder / ".muster/server/muster.db", scene.chance.uniform(0.5, _MOST_S)
    held = threading.Event()

    def hold() -> None:
        with contextlib.closing(sqlite3.connect(file, timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            held.set()
            time.sleep(seconds)
            connection.execute("ROLLBACK")

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    scene.undo.append(thread.join)
    return Expected()


def folder_removed(scene: Scene) -> Expected:
    """Something clears up among the folders of running attempts."""
    (folder, *_) = sorted(scene.stage.folder.glob(f".muster/nodes/*/attempts/{scene.run_id}.1"))
    shutil.rmtree(folder, ignore_errors=True)
    expected = scene.fails("platform")
    return Expected(expected.codes, retried=expected.retried, loses="the folder was removed")


def store_unwritable(scene: Scene) -> Expected:
    """The run's folder in the store is a file for a while: nothing can be delivered."""
    place = scene.stage.folder / ".muster/store/runs" / scene.run_id / "attempts/1/outputs"
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        return Expected()
    place.write_text("a file where a folder belongs")
    timer = threading.Timer(scene.chance.uniform(0.5, _MOST_S), place.unlink)
    timer.start()
    scene.undo.append(timer.join)
    return Expected()


def server_slow(scene: Scene) -> Expected:
    """It gets little of the processor: stopped and continued again and again."""
    server = scene.stage.server()
    for _ in range(4):
        pause(scene, server, 0.5)
        time.sleep(0.2)
    return Expected()


PARTS = (
    Fault("the server killed at a write", server_killed_at_a_write, ("flowing", "submitted"), before=count_writes),
    Fault("the server upgraded", server_upgraded, ("begun", "flowing", "middle")),
    Fault("the server's descriptors used up", descriptors_of_server, (*_HELD, "flowing")),
    Fault("an agent's descriptors used up", descriptors_of_agent, (*_HELD, "flowing")),
    Fault("the server's memory used up", memory_of_server, (*_HELD, "flowing")),
    Fault("the database locked by another program", database_locked, (*_HELD, "flowing", "submitted")),
    Fault("an attempt's folder removed", folder_removed, _HELD),
    Fault("a store that takes no outputs for a while", store_unwritable, ("begun", "middle")),
    Fault("an agent's memory used up", memory_of_agent, (*_HELD, "flowing")),
    Fault("the server slow", server_slow, (*_HELD, "flowing", "submitted")),
)
