"""A PostgreSQL database belongs to one server. Tests of a run's life have the database as a parameter of their site."""

from __future__ import annotations

import pytest

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
