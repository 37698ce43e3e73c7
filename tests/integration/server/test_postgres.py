"""A PostgreSQL database belongs to one server. Tests of a run's life have the database as a parameter of their site."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from fastapi import Request, Response
from sqlalchemy import insert, text
from tests.conftest import Postgres

from muster.errors import Conflict
from muster.server.database import tables
from muster.server.database.connection import Database, Transaction
from muster.server.http.paging import paged
from muster.server.monitoring.facts import load as load_monitored
from muster.server.tracking.filters import RunFilter
from muster.server.tracking.labels import set_params
from muster.server.tracking.listing import Wanted, list_rows, load_facets
from muster.server.tracking.recording import add_points
from muster.wire.runs import MetricPoint


def test_a_database_has_one_server(fresh_postgres_url: str):
    first = Database(fresh_postgres_url)
    try:
        with pytest.raises(Conflict, match="another server has the database"):
            Database(fresh_postgres_url)
    finally:
        first.close()
    Database(fresh_postgres_url).close()


def test_a_database_server_that_comes_back_is_waited_for(postgres: Postgres, fresh_postgres_url: str):
    database = Database(fresh_postgres_url)
    try:
        assert database.submit(_one).result(30) == 1
        postgres.stop(at_once=True)
        waiting = database.submit(_one)
        reading = threading.Thread(target=lambda: database.read_now(_one))
        reading.start()
        postgres.start()
        assert waiting.result(30) == 1
        reading.join(30)
        assert not reading.is_alive()
        # The lock that keeps other servers away was held by a connection that is gone.
        with pytest.raises(Conflict, match="another server has the database"):
            Database(fresh_postgres_url)
    finally:
        database.close()


def _one(connection: Any) -> int:
    return int(connection.execute(text("SELECT 1")).scalar())


def test_the_table_of_runs_is_filtered_and_sorted(fresh_postgres_url: str):
    database = Database(fresh_postgres_url)
    try:
        database.submit(_add_runs).result(30)
        for wanted, names in (
            (Wanted(RunFilter(text="NET 1 50%")), ["r1"]),
            (Wanted(RunFilter(tags=["team=50%"], person="ada", cluster="local", since=0.0)), ["r1"]),
            (Wanted(sort="duration", ascending=True), ["r2", "r1", "r0"]),
            (Wanted(sort="name"), ["r2", "r1", "r0"]),
            (Wanted(param="lr"), ["r1", "r2", "r0"]),
            (Wanted(metric="loss"), ["r2", "r1", "r0"]),
            (Wanted(metric="loss", by="last", ascending=False), ["r1", "r2", "r0"]),
        ):
            assert _listed(database, wanted) == names, wanted
        assert database.read_now(load_facets).experiments[0].runs == 3
        assert database.read_now(load_monitored).runs["Completed"] == 3
    finally:
        database.close()


def _add_runs(transaction: Transaction) -> None:
    for number in range(3):
        row = {
            "id": f"r{number}", "key": f"k{number}", "display_name": f"Net {number}", "experiment": "e",
            "status": "Completed", "created_at": float(number), "started_at": 0.0,
            "ended_at": float(3 - number) if number else None, "spec": {}, "submitted_by": "ada", "compute": "local",
            "priority": 0, "num_nodes": 1, "num_ranks": 1, "ranks_per_node": 1, "attempt": 1,
            "tags": {"team": f"{50 * number}%"}, "notices": [],
        }  # fmt: skip
        transaction.execute(insert(tables.runs).values(**row))
        if number:
            set_params(transaction, f"r{number}", 1, {"lr": f"1e-{number}"})
            point = MetricPoint("loss", 1.0 / number, 0, 0, "rank_0", "scalar", 0.0, 1)
            add_points(transaction, f"r{number}", [point])


def _listed(database: Database, wanted: Wanted) -> list[str]:
    """All pages, of one run each."""
    found: list[str] = []
    address: str = "/api/v1/summaries?limit=1"
    while True:
        parts = urlsplit(address)
        scope = {
            "type": "http",
            "method": "GET",
            "path": parts.path,
            "query_string": parts.query.encode(),
            "headers": [],
        }
        cursor = dict(parse_qsl(parts.query)).get("cursor")
        page = asyncio.run(paged(1)(Request(scope), Response(), 1, cursor))
        found += [row.id for row in database.read_now(lambda c, page=page: list_rows(c, page, wanted))]  # type: ignore[misc]
        link = page.response.headers.get("Link")
        if link is None:
            return found
        address = link[1:].partition(">")[0]
