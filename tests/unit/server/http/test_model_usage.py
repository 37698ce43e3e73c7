"""A model that is served or in use stays; a number that was given is not given again; what serves does not hang."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import insert, update
from tests.unit.server.conftest import Server

from muster.control import endpoints as control
from muster.server.database import tables
from muster.server.database.records import find_run, move_run
from muster.server.endpoints import records, views
from muster.server.models import registry, usage
from muster.server.runs.views import moved_at
from muster.wire import states
from muster.wire.serving.services import serves

SERVE = ["python", "-m", "muster.scoring.serve", '{"script": "score.py"}']


@pytest.fixture(autouse=True)
def accepted(server: Server) -> None:
    server.context.isolation = "none"


def register(server: Server, version: int | None = None) -> int:
    return server.write(lambda t: registry.add_model(t, "toy", "p", None, None, {}, {}, version=version)).version


def submit(server: Server, key: str, model: str | None = None) -> str:
    spec: dict[str, Any] = {"command": SERVE, "compute": "two"}
    status, view = server.call("POST", "/runs", {"key": key, "spec": spec})
    assert status == 201, view
    if model is not None:
        given = {**view["spec"], "inputs": {"model": {"type": "custom_model", "path": model}}}
        server.write(lambda t: t.execute(update(tables.runs).where(tables.runs.c.id == view["id"]).values(spec=given)))
    return str(view["id"])


def revision(server: Server, number: int, model: str, state: str, status: states.RunStatus) -> str:
    """A run of digits/blue in some state."""
    run = submit(server, f"blue-{number}", model)
    row = {
        "run_id": run, "endpoint": "digits", "deployment": "blue", "revision": number, "attempt": 1, "state": state,
        "address": "127.0.0.1", "replicas": [{"port": 1, "ready": True}], "since": 0.0,
    }  # fmt: skip
    server.write(lambda t: t.execute(insert(tables.endpoint_runs), row))
    more = {"verdict": {"code": "user_error", "message": "no weights"}} if status == states.FAILED else {}
    server.write(lambda t: move_run(t, run, status, **more))
    return run


@pytest.fixture
def after_a_failed_update(server: Server) -> tuple[str, str]:
    """toy:2 answers, and the revision with toy:1 did not come up."""
    assert [register(server) for _ in range(3)] == [1, 2, 3]
    assert server.call("POST", "/endpoints", {"name": "digits"})[0] == 201
    row = {"endpoint": "digits", "name": "blue", "revision": 3, "model": "toy:1", "created_at": 0.0, "updated_at": 0.0}
    spec = {"submission": {"key": "k", "spec": {}, "snapshot": None}, "instances": 1}
    server.write(lambda t: t.execute(insert(tables.deployments), {**row, "spec": spec}))
    server.write(lambda t: t.execute(update(tables.endpoints).values(traffic={"blue": 100})))
    old = revision(server, 2, "models:/toy/2", control.SERVING, states.RUNNING)
    return old, revision(server, 3, "models:/toy/1", control.STARTING, states.FAILED)


def test_every_revision_that_answers_keeps_its_model(server: Server, after_a_failed_update: tuple[str, str]) -> None:
    for version in (1, 2):
        status, said = server.call("DELETE", f"/models/toy/versions/{version}")
        assert status == 409 and "is served by digits/blue" in said["error"]["message"], said
    assert server.call("DELETE", "/models/toy/versions/3")[0] in (200, 204)


def test_what_is_shown_is_what_answers(server: Server, after_a_failed_update: tuple[str, str]) -> None:
    old, new = after_a_failed_update
    shown = server.call("GET", "/endpoints/digits")[1]["deployments"][0]
    assert (shown["state"], shown["model"], shown["run"]) == ("serving", "toy:2", old)
    assert (shown["serving_revision"], shown["revision"], shown["newest_run"]) == (2, 3, new)
    assert shown["why"] == "no weights" and shown["ready"] == 1

    def view(connection: Any) -> Any:
        return views.view(server.context, connection, records.find(connection, "digits")).deployments[0]

    seen = server.context.database.read_now(view)
    assert seen.has_failed and not seen.has_come_up
    server.write(lambda t: move_run(t, old, states.FAILED))
    gone = server.context.database.read_now(view)
    assert gone.state == "failed" and gone.ready == 0 and gone.serving_revision is None


def test_a_model_of_a_run_that_is_not_over_stays(server: Server) -> None:
    register(server)
    run = submit(server, "a", "models:/toy/1")
    status, said = server.call("DELETE", "/models/toy/versions/1")
    assert status == 409 and run in said["error"]["message"]
    server.write(lambda t: move_run(t, run, states.CANCELED))
    assert server.context.database.read_now(lambda c: usage.runs_of(c, "toy", None)) == []


def test_a_number_is_given_once(server: Server) -> None:
    assert [register(server), register(server)] == [1, 2]
    server.write(lambda t: registry.remove(t, "toy", 2))
    assert register(server) == 3
    with pytest.raises(Exception, match="toy:2 was deleted"):
        register(server, 2)
    server.write(lambda t: registry.remove(t, "toy", None))
    assert register(server) == 4 and register(server, 9) == 9 and register(server) == 10


def test_what_serves_is_never_silent_and_has_no_end_in_sight(server: Server) -> None:
    run = submit(server, "a")
    server.write(lambda t: move_run(t, run, states.RUNNING, started_at=1.0))
    row = server.context.database.read_now(lambda c: find_run(c, run))
    assert moved_at(server.context, row) is None
    shown = server.call("GET", f"/runs/{run}")[1]
    assert shown.get("moved_at") is None and shown.get("ends_between") is None


def test_the_server_is_not_ended_under_runs_which_it_names(server: Server) -> None:
    runs = [submit(server, key) for key in "abcdefg"]
    status, said = server.call("POST", "/shutdown", {})
    assert status == 409
    assert said["error"]["message"] == f"7 runs are active: {', '.join(reversed(runs[2:]))} and 2 more"


@pytest.mark.parametrize(
    ("command", "is_one"),
    [
        (["python", "-E", "-m", "muster.fileserver"], True),
        (["python", "-m", "muster.scoring.door"], True),
        (["python", "-m", "train"], False),
        ("python -m muster.fileserver", False),
    ],
)
def test_programs_that_serve_are_known_by_their_command(command: Any, is_one: bool) -> None:
    assert serves(command) is is_one
