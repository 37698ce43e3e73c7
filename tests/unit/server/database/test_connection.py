"""Group commit: writes share a commit, failures do not share their fate."""

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import delete, insert, select, text

from muster.errors import DiskFull, ProtocolMismatch, ServerUnavailable
from muster.server.database import tables
from muster.server.database.connection import Database, on_network_filesystem


@pytest.fixture
def database(tmp_path):
    found = Database(f"sqlite:///{tmp_path}/muster.db")
    yield found
    found.close()


def add(database, name, then=None):
    def work(transaction):
        add_row(transaction, name)
        if then:
            then(transaction)

    return database.submit(work)


def add_row(transaction, name, options=None):
    row = {"name": name, "kind": "local", "options": options or {}, "created_at": 0.0}
    transaction.execute(insert(tables.datastores).values(**row))


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


def test_one_that_gives_up_waiting_leaves_the_writer_alive(database):
    entered, gate = threading.Event(), threading.Event()
    first = add(database, "first", lambda _: (entered.set(), gate.wait(5)))
    # The writer takes all that waits as one batch; what comes from here on is in the next.
    assert entered.wait(5)

    async def give_up():
        begun = asyncio.create_task(database.write(lambda _: gate.wait(5)))
        queued = asyncio.create_task(database.write(lambda t: add_row(t, "queued")))
        await asyncio.sleep(0)
        for task in (begun, queued):
            task.cancel()
        await asyncio.wait([begun, queued])

    asyncio.run(give_up())
    gate.set()
    first.result(5)
    add(database, "after").result(5)
    assert names(database) == ["after", "first"]


def test_one_that_gives_up_in_the_middle_of_its_commit_leaves_the_writer_alive(database):
    begun, gate = threading.Event(), threading.Event()

    async def give_up():
        task = asyncio.create_task(database.write(lambda t: (begun.set(), gate.wait(5), add_row(t, "begun"))))
        await asyncio.to_thread(begun.wait, 5)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(give_up())
    gate.set()
    add(database, "after").result(5)
    assert names(database) == ["after", "begun"]


def test_what_follows_a_write_may_fail_and_the_write_is_still_acknowledged(database):
    add(database, "a", lambda t: t.after_commit.append(lambda: 1 / 0)).result(5)
    add(database, "b").result(5)
    assert names(database) == ["a", "b"]


def test_a_database_that_runs_full_in_a_shared_commit_takes_no_acknowledged_write_along(database):
    """SQLite then rolls everything back, the writes before it too."""
    gate, aborted = threading.Event(), []
    database.writer.after_abort = lambda: aborted.append(1)
    first = add(database, "first", lambda _: gate.wait(5))
    good = [add(database, f"good-{index}") for index in range(3)]
    large = add(database, "large", lambda t: fill_up(t))
    last = add(database, "last")
    gate.set()
    for future in (first, *good, last):
        future.result(5)
    with pytest.raises(DiskFull, match="muster rm"):
        large.result(5)
    assert names(database) == ["first", *(f"good-{index}" for index in range(3)), "last"]
    assert aborted


def test_a_write_to_a_closed_database_is_refused(tmp_path):
    closed = Database(f"sqlite:///{tmp_path}/muster.db")
    closed.close()
    with pytest.raises(ServerUnavailable):
        add(closed, "late").result(5)


def fill_up(transaction):
    """What a full disk does, by a limit on the file's size."""
    pages = transaction.execute(text("PRAGMA page_count")).scalar()
    transaction.execute(text(f"PRAGMA max_page_count = {pages + 4}"))
    try:
        for index in range(1000):
            add_row(transaction, f"large-{index}", {"text": "x" * 1000})
    finally:
        transaction.execute(text("PRAGMA max_page_count = 1000000"))


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


def differences(database):
    return database.read_now(lambda c: compare_metadata(MigrationContext.configure(c), tables.metadata))


def test_a_new_database_has_the_tables_of_today(database):
    assert differences(database) == []


def test_an_older_database_is_migrated_with_what_it_holds(tmp_path):
    path = tmp_path / "muster.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript((Path(__file__).parent / "first_schema.sql").read_text())
        connection.execute(
            "INSERT INTO runs (id, key, experiment, status, created_at, spec, compute, priority, num_nodes, num_ranks,"
            " ranks_per_node, attempt, tags, notices, progress) VALUES ('old', 'k', 'e', 'Completed', 1.0, '{}',"
            """ 'local', 1, 1, 1, 1, 2, '{}', '[]', '{"done": 7, "unit": "steps"}')"""
        )
        connection.commit()
    migrated = Database(f"sqlite:///{path}")
    try:
        assert differences(migrated) == []
        row = migrated.read_now(lambda c: c.execute(select(tables.progress)).one())
        assert (row.run_id, row.rank, row.attempt, row.done, row.unit) == ("old", 0, 2, 7.0, "steps")
        assert [migrated.submit(renumbered).result() for _ in range(2)] == [1, 2], "the number of a removed event"
    finally:
        migrated.close()


def renumbered(transaction):
    transaction.execute(delete(tables.events))
    transaction.execute(insert(tables.events).values(run_id="r", at=1.0, kind="state", data={}))
    return transaction.execute(select(tables.events.c.id)).scalar()


def test_a_new_database_needs_no_alembic(tmp_path):
    code = f"""
import sys
from muster.server.database.connection import Database
Database("sqlite:///{tmp_path}/muster.db").close()
assert "alembic" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
