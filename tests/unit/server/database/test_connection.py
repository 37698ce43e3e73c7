"""Group commit: writes share a commit, failures do not share their fate."""

import threading

import pytest
from sqlalchemy import insert, select, text

from muster.errors import ProtocolMismatch
from muster.server.database import tables
from muster.server.database.connection import Database, on_network_filesystem


@pytest.fixture
def database(tmp_path):
    found = Database(f"sqlite:///{tmp_path}/muster.db")
    yield found
    found.close()


def add(database, name, then=None):
    def work(transaction):
        row = {"name": name, "kind": "local", "options": {}, "created_at": 0.0}
        transaction.execute(insert(tables.datastores).values(**row))
        if then:
            then(transaction)

    return database.submit(work)


def names(database):
    rows = database.read_now(lambda c: c.execute(select(tables.datastores.c.name)).all())
    return sorted(row.name for row in rows)


def test_writes_that_wait_share_a_commit_and_one_that_fails_leaves_the_others(database):
    gate = threading.Event()
    first = add(database, "first", lambda _: gate.wait(5))
    good = [add(database, f"good-{index}") for index in range(5)]
    bad = add(database, "bad", lambda _: 1 / 0)
    last = add(database, "last")
    gate.set()
    for future in (first, *good, last):
        future.result(5)
    with pytest.raises(ZeroDivisionError):
        bad.result(5)
    assert names(database) == ["first", *(f"good-{index}" for index in range(5)), "last"]


def test_what_is_to_be_done_after_a_commit_is_done_only_then(database):
    seen = []
    add(database, "a", lambda t: t.after_commit.append(lambda: seen.append(names(database)))).result(5)
    assert seen == [["a"]]
    failing = add(database, "b", lambda t: (t.after_commit.append(lambda: seen.append("never")), 1 / 0))
    with pytest.raises(ZeroDivisionError):
        failing.result(5)
    assert seen == [["a"]]


def test_every_acknowledged_write_is_synchronous(database):
    pragmas = database.read_now(
        lambda c: (c.execute(text("PRAGMA synchronous")).scalar(), c.execute(text("PRAGMA journal_mode")).scalar())
    )
    assert pragmas == (2, "wal")


def test_a_database_of_a_newer_muster_is_left_alone(tmp_path):
    url = f"sqlite:///{tmp_path}/muster.db"
    found = Database(url)
    found.submit(lambda t: t.execute(text("UPDATE alembic_version SET version_num = '9999'"))).result(5)
    found.close()
    with pytest.raises(ProtocolMismatch, match="newer than this Muster"):
        Database(url)


def test_this_disk_is_no_network_filesystem(tmp_path):
    assert not on_network_filesystem(tmp_path)


def test_the_migrations_make_the_tables_that_the_code_expects(database):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    def differences(connection):
        return compare_metadata(MigrationContext.configure(connection), tables.metadata)

    assert database.read_now(differences) == []
