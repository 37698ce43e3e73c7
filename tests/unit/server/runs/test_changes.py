"""Cancelling runs that wait, one and many."""

from __future__ import annotations

from sqlalchemy import func, select

from muster.server.database import tables
from muster.server.runs import changes, submission
from muster.wire.runs import Submission


def submit(server, count):
    spec = {"command": "true", "compute": "two"}

    def work(transaction):
        return [submission.accept(server.context, transaction, Submission(f"k{n}", spec)) for n in range(count)]

    return server.write(work)


def statuses(server):
    query = select(tables.runs.c.status, func.count()).group_by(tables.runs.c.status)
    return dict(server.context.database.read_now(lambda c: c.execute(query).all()))


def test_many_runs_are_cancelled_by_one_call(server):
    ids = submit(server, 30)
    server.write(lambda t: changes.cancel(server.context, t, ids[:1], True, "ann"))
    code, answer = server.call("POST", "/runs/cancel", {"runs": ids})
    assert code == 200
    assert [item["id"] for item in answer] == ids
    assert [item.get("ended_before", False) for item in answer] == [True] + [False] * 29
    assert statuses(server) == {"Canceled": 30}
    view = server.call("GET", f"/runs/{ids[5]}")[1]
    assert view["verdict"]["code"] == "cancelled"


def test_none_is_cancelled_where_one_is_not_known(server):
    ids = submit(server, 3)
    code, answer = server.call("POST", "/runs/cancel", {"runs": [*ids, "nobody"]})
    assert (code, answer["error"]["code"]) == (404, "not_found")
    assert statuses(server) == {"Queued": 3}


def test_the_number_of_statements_does_not_grow_with_the_runs_that_wait(server):
    ids = submit(server, 50)
    seen = []

    def work(transaction):
        connection = transaction.connection
        execute = type(connection).execute
        transaction.execute = lambda statement, parameters=None: (
            seen.append(statement),
            execute(connection, statement, parameters),
        )[1]
        return changes._cancel_waiting(server.context, transaction, rows, False, "ann")

    rows = server.context.database.read_now(
        lambda c: c.execute(select(tables.runs).where(tables.runs.c.id.in_(ids))).all()
    )
    server.write(work)
    assert len(seen) == 2
    assert statuses(server) == {"Canceled": 50}
