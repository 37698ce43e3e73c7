"""Copies of a database, from and into both kinds, and what is found damaged."""

from pathlib import Path

import pytest
from sqlalchemy import insert, select

from muster.errors import UserError
from muster.server.database import tables
from muster.server.database.backup import AutomaticBackups, copy_to_file, put_back
from muster.server.database.connection import Database
from muster.server.database.integrity import problem, refuse_damaged


def database(path: Path, *names: str) -> str:
    url = f"sqlite:///{path}"
    made = Database(url)
    for name in names:
        row = {"name": name, "kind": "local", "options": {"n": name}, "created_at": 0.5}
        made.submit(lambda t, row=row: t.execute(insert(tables.datastores).values(**row))).result(5)
    made.close()
    return url


def names(url: str) -> list[str]:
    opened = Database(url)
    try:
        return sorted(opened.read_now(lambda c: c.execute(select(tables.datastores.c.name)).scalars().all()))
    finally:
        opened.close()


def test_a_copy_holds_what_the_database_held_and_replaces_what_another_holds(tmp_path):
    copy = tmp_path / "copy.db"
    copy_to_file(database(tmp_path / "a.db", "one", "two"), copy)
    other = database(tmp_path / "b.db", "three")
    put_back(copy, other, tmp_path / "aside")
    assert names(other) == ["one", "two"]
    assert names(f"sqlite:///{tmp_path}/aside/b.db") == ["three"]
    assert sorted(path.name for path in tmp_path.glob("*.part*")) == []


def test_a_copy_is_of_one_moment_while_writes_go_on(tmp_path):
    opened = Database(f"sqlite:///{tmp_path}/a.db")
    try:
        row = {"name": "held", "kind": "local", "options": {}, "created_at": 0.0}
        opened.submit(
            lambda t: (
                t.execute(insert(tables.datastores).values(**row)),
                copy_to_file(f"sqlite:///{tmp_path}/a.db", tmp_path / "copy.db"),
            )
        ).result(5)
    finally:
        opened.close()
    assert names(f"sqlite:///{tmp_path}/copy.db") == []


def test_what_is_damaged_is_neither_used_nor_put_back(tmp_path):
    file = tmp_path / "a.db"
    url = database(file, *(f"store-{number}" for number in range(200)))
    assert problem(file) == ""
    whole = file.read_bytes()
    file.write_bytes(whole[:8192] + b"\xff" * 8192 + whole[16384:])
    assert problem(file)
    opened = Database(url)
    with pytest.raises(UserError, match=r"is damaged(.|\n)*muster repair"):
        refuse_damaged(opened)
    opened.close()
    with pytest.raises(UserError, match="is damaged"):
        put_back(file, url, tmp_path / "aside")
    file.write_bytes(b"not a database " * 1000)
    assert "not a database" in problem(file)
    assert problem(tmp_path / "none.db") == ""


def test_the_newest_whole_copy_is_taken_and_old_ones_go(tmp_path):
    url = database(tmp_path / "a.db", "one")
    backups = AutomaticBackups(tmp_path / "backups", keep=2)
    assert backups.age_s() == float("inf")
    first = backups.make(url)
    for number in range(1, 4):
        first.rename(first.with_name(f"muster-2020010{number}-000000.db"))
        first = backups.make(url)
    assert len(backups.newest_first()) == 2
    newest, older = backups.newest_first()
    newest.write_bytes(b"x" * 5000)
    assert backups.newest_whole() == older
