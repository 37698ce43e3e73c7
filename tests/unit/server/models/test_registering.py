"""What a run is asked to have when a model is registered from it."""

from __future__ import annotations

from sqlalchemy import update
from tests.unit.server.conftest import Server

from muster.server.database import tables
from muster.server.mlflow.runs import add_run
from muster.wire import states


def test_a_run_that_is_over_gets_no_more_files(server: Server) -> None:
    run = server.write(lambda t: add_run(t, "mine", "training", "ada", 1.0))
    body = {"name": "net", "path": "outputs/net", "run_id": run}
    # While it runs, the files may still come.
    assert server.call("POST", "/models", body)[0] == 201
    over = update(tables.runs).where(tables.runs.c.id == run).values(status=states.COMPLETED)
    server.write(lambda t: t.execute(over))
    status, answer = server.call("POST", "/models", body)
    assert status == 404 and "keeps no file or folder 'outputs/net'" in answer["error"]["message"]
    assert [model["version"] for model in server.call("GET", "/models")[1]] == [1]
