"""Runs of `muster cluster check`, and those that runs made, are nobody's latest, and are listed when asked for."""

from __future__ import annotations

import pytest
from tests.unit.server.conftest import Server

from muster.errors import NotFound
from muster.server.database.records import find_run
from muster.server.mlflow.runs import add_run
from muster.server.runs.submission import submit
from muster.server.tracking.labels import set_tags
from muster.wire import states
from muster.wire.runs import Submission
from muster.wire.tracking import PARENT_TAG


def submitted(server: Server, key: str, experiment: str) -> str:
    spec = {"command": "true", "compute": "two", "experiment_name": experiment}
    return server.write(lambda t: submit(server.context, t, Submission(key, spec))).id


def test_a_check_is_not_the_latest_run(server: Server) -> None:
    check = submitted(server, "a", states.CHECKS)
    with pytest.raises(NotFound):
        server.write(lambda t: find_run(t.connection, "@latest"))
    mine = submitted(server, "b", "mine")
    submitted(server, "c", states.CHECKS)
    assert server.write(lambda t: find_run(t.connection, "@latest")).id == mine
    assert server.write(lambda t: find_run(t.connection, check)).id == check
    assert [view["id"] for view in server.call("GET", "/runs?checks=false")[1]] == [mine]
    assert len(server.call("GET", "/runs")[1]) == 3


def test_what_a_run_made_is_not_the_latest_run(server: Server) -> None:
    mine = submitted(server, "a", "mine")
    child = server.write(lambda t: add_run(t, "mine", "child", "ada", 1.0))
    assert server.write(lambda t: find_run(t.connection, "@latest")).id == child
    server.write(lambda t: set_tags(t, child, {PARENT_TAG: mine}))
    assert server.write(lambda t: find_run(t.connection, "@latest")).id == mine
