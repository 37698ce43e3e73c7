"""What keeps the replicas of one run: which of them end, when, and which are started again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import wait_until

from muster.scoring.listening import listener_on
from muster.scoring.serve.settings import Settings
from muster.scoring.serve.supervisor import Supervisor

SCRIPT = """
import os

def init():
    if os.path.exists("broken"):
        raise RuntimeError("the weights are missing")

def run(data):
    return os.getpid()
"""


class Log:
    """The run that a supervisor tells its figures."""

    def log(self, name: str, value: float) -> None:
        return None


class Kept:
    """A supervisor at work in a thread."""

    def __init__(self, **settings: Any) -> None:
        given = Settings(script="score.py", endpoint="digits", deployment="blue", **settings)
        self.supervisor = Supervisor(given, lambda number: listener_on("127.0.0.1"), Log())
        self.codes: list[int] = []
        self._thread = threading.Thread(target=lambda: self.codes.append(self.supervisor.work()))
        self._thread.start()

    def ready(self) -> int:
        return sum(replica.is_ready for replica in self.supervisor.active)

    def end(self) -> None:
        self.supervisor.ending = True
        self._thread.join()
        for replica in self.supervisor.replicas:
            replica.listener.close()
            replica.process.wait()


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "score.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    made: list[Kept] = []

    def work(**settings: Any) -> Kept:
        made.append(Kept(**settings))
        return made[-1]

    yield work
    for kept in made:
        kept.end()


def test_a_replica_that_cannot_be_started_again_leaves_the_others_at_work(keep: Any, tmp_path: Path) -> None:
    kept = keep(replicas=2)
    wait_until(lambda: kept.ready() == 2, 60, "two replicas")
    (tmp_path / "broken").touch()
    kept.supervisor.replicas[0].process.kill()
    wait_until(lambda: kept.supervisor.totals.restarts >= 3, 60, "tries")
    assert kept.ready() == 1 and not kept.codes
    (tmp_path / "broken").unlink()
    wait_until(lambda: kept.ready() == 2, 60, "both again")


def test_a_model_that_never_loads_ends_the_run(keep: Any, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    kept = keep(replicas=2)
    wait_until(lambda: kept.codes, 60, "the end")
    assert kept.codes == [3]


def test_replicas_stay_while_they_may_not_be_fewer_and_nothing_is_said_of_it(keep: Any, capsys: Any) -> None:
    kept = keep(replicas=1, max_replicas=2, polling_s=0.1, idle_s=0.2)
    supervisor = kept.supervisor
    supervisor.waiting_elsewhere = lambda: 10
    wait_until(lambda: kept.ready() == 2, 60, "two replicas")
    looks: list[bool] = []

    def may_shrink() -> bool:
        looks.append(False)
        return False

    supervisor.may_shrink, supervisor.waiting_elsewhere = may_shrink, lambda: 0
    wait_until(lambda: len(looks) > 3, 60, "looks")
    assert len(supervisor.active) == 2
    kept.end()
    assert [line for line in capsys.readouterr().out.splitlines() if "→" in line] == ["replicas: 1 → 2 (10 wait)"]


def test_a_replica_ends_only_once_the_front_door_does_not_ask_it_any_more(keep: Any) -> None:
    kept = keep(replicas=1, max_replicas=2, polling_s=0.1, idle_s=0.2)
    supervisor = kept.supervisor
    wait_until(lambda: kept.ready() == 1, 60, "a replica")
    supervisor.waiting_elsewhere = lambda: 10
    wait_until(lambda: kept.ready() == 2, 60, "another")
    supervisor.waiting_elsewhere = lambda: 0
    wait_until(lambda: len(supervisor.active) == 1, 60, "one that leaves")
    (leaving,) = (replica for replica in supervisor.replicas if replica.is_leaving)
    # The front door still has it on its list, as where the server is away.
    supervisor.unasked_but([replica.port for replica in supervisor.replicas])
    assert leaving.leaves_at is None and leaving.process.poll() is None
    supervisor.unasked_but([replica.port for replica in supervisor.active])
    wait_until(lambda: leaving not in supervisor.replicas, 60, "its end")
    assert leaving.process.returncode == 0 and kept.ready() == 1
