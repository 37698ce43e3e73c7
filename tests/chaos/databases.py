"""A workspace on PostgreSQL, whose server fails."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from functools import partial

import psutil
from tests.chaos.checks import Expected
from tests.chaos.processes import all_killed, rank_and_server_killed, server_killed, server_killed_often
from tests.chaos.stage import Stage
from tests.chaos.trial import Fault, Scene
from tests.conftest import Postgres, _postgres_bin_dir

_MOMENTS = ("submitted", "begun", "flowing", "middle", "last")


def missing() -> str:
    return "" if _postgres_bin_dir() else "PostgreSQL is not installed (apt-get install postgresql)"


@dataclass
class PostgresStage(Stage):
    """The same as a local workspace, with its records on a database server of its own."""

    name: str = "postgres"

    def configure(self) -> None:
        super().configure()
        bin_dir = _postgres_bin_dir()
        assert bin_dir is not None
        self.postgres = Postgres(bin_dir)
        self._stack.callback(self.postgres.close)
        config = self.folder / ".muster" / "workspace.json"
        url = self.postgres.new_database()
        config.write_text(json.dumps({**json.loads(config.read_text()), "database": url}))


def _postgres(scene: Scene) -> Postgres:
    assert isinstance(scene.stage, PostgresStage)
    return scene.stage.postgres


def _backends(scene: Scene) -> list[psutil.Process]:
    """Processes that serve the connections of Muster's server."""
    children = psutil.Process(_postgres(scene).process.pid).children()
    return [child for child in children if "muster" in " ".join(child.cmdline())]


def connections_ended(scene: Scene) -> Expected:
    """As an administrator ends them, or a proxy before the database does."""
    for backend in _backends(scene):
        with contextlib.suppress(psutil.Error):
            backend.terminate()
    return Expected()


def backend_killed(scene: Scene) -> Expected:
    """PostgreSQL ends every connection and recovers."""
    backends = _backends(scene)
    if backends:
        with contextlib.suppress(psutil.Error):
            scene.chance.choice(backends).kill()
    return Expected()


def database_restarted(scene: Scene) -> Expected:
    server = _postgres(scene)
    server.stop(at_once=bool(scene.chance.randrange(2)))
    scene.undo.append(server.start)
    return Expected()


def database_stopped(scene: Scene) -> Expected:
    """It answers nobody for some seconds."""
    processes = [psutil.Process(_postgres(scene).process.pid), *_backends(scene)]
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.suspend()
    for process in processes:
        scene.undo.append(partial(_resume, process))
    return Expected()


def _resume(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.Error):
        process.resume()


POSTGRES = (
    Fault("connections to PostgreSQL ended", connections_ended, _MOMENTS),
    Fault("a backend of PostgreSQL killed", backend_killed, _MOMENTS),
    Fault("PostgreSQL restarted", database_restarted, _MOMENTS),
    Fault("PostgreSQL stopped and continued", database_stopped, _MOMENTS),
    Fault("the server killed", server_killed, _MOMENTS),
    Fault("the server killed again and again", server_killed_often, _MOMENTS),
    Fault("server, agents and keepers killed at once", all_killed, _MOMENTS[1:]),
    Fault("a rank and the server killed", rank_and_server_killed, _MOMENTS[1:]),
)
