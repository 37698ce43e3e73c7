"""Runs of `muster cluster check` are nobody's latest, and are listed where they are asked for."""

from __future__ import annotations

import pytest
from tests.unit.server.conftest import Server

from muster.errors import NotFound
from muster.server.database.records import find_run
from muster.server.runs.submission import submit
from muster.wire import states
from muster.wire.runs import Submission


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
