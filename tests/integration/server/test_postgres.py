"""A PostgreSQL database belongs to one server. Tests of a run's life have the database as a parameter of their site."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import text
from tests.conftest import Postgres

from muster.errors import Conflict
from muster.server.database.connection import Database


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
