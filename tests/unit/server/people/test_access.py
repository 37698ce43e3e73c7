"""Who is calling: tokens of people, agents and the workspace's owner."""

import stat

import pytest

from muster.control.access import Caller
from muster.errors import AccessDenied, Conflict, NotFound
from muster.server.database.connection import Database
from muster.server.people.access import INVITE, Tokens
from muster.server.people.persons import login_name


@pytest.fixture
def database(tmp_path):
    found = Database(f"sqlite:///{tmp_path}/muster.db")
    yield found
    found.close()


@pytest.fixture
def tokens(database):
    made = Tokens(database)
    database.submit(lambda t: made.people.add(t, "ada", "member", "root")).result()
    return made


def change(tokens, database, name, **changes):
    return database.submit(lambda t: tokens.people.change(t, name, **changes)).result()


def test_a_token_is_known_by_its_hash_alone(tokens, tmp_path):
    token = tokens.create("member", "ada")
    caller = tokens.caller(f"Bearer {token}")
    assert (caller.role, caller.subject) == ("member", "ada")
    assert token.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert caller.token not in token


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer nonsense", "Basic abc", "Bearer muster_", "bearer \ud800", f"Bearer {'x' * 100_000}"],
    ids=lambda header: repr(header)[:20],
)
def test_anything_else_is_refused(tokens, header):
    with pytest.raises(AccessDenied):
        tokens.caller(header)


def test_the_hash_that_the_database_keeps_opens_nothing(tokens, database):
    tokens.create("member", "ada")
    from sqlalchemy import select

    from muster.server.database import tables

    for kept in database.read_now(lambda c: c.execute(select(tables.tokens.c.hash)).scalars().all()):
        with pytest.raises(AccessDenied):
            tokens.caller(f"Bearer {kept}")


def test_an_expired_token_is_refused(tokens):
    with pytest.raises(AccessDenied, match="expired"):
        tokens.caller(f"Bearer {tokens.create('member', 'ada', lifetime_s=-1)}")


def test_an_invitation_is_no_token(tokens):
    with pytest.raises(AccessDenied):
        tokens.caller(f"Bearer {tokens.create(INVITE, 'ada', 60.0)}")


def test_a_token_of_nobody_opens_nothing(tokens):
    with pytest.raises(AccessDenied):
        tokens.caller(f"Bearer {tokens.create('admin', 'eve')}")


def test_the_owners_token_is_private_and_stays(tokens, tmp_path):
    path = tmp_path / "admin.token"
    token = tokens.admin(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert tokens.admin(path) == token
    assert tokens.caller(f"Bearer {token}").subject == login_name()


def test_the_owners_token_of_an_earlier_version_stays(tokens, database, tmp_path):
    path = tmp_path / "admin.token"
    token = tokens.create("admin", "owner")
    path.write_text(token)
    assert tokens.admin(path) == token
    assert tokens.caller(f"Bearer {token}").role == "admin"
    assert Tokens(database).caller(f"Bearer {token}").subject == login_name()


def test_a_token_never_opens_more_than_its_person_may(tokens, database):
    wide, narrow = tokens.create("admin", "ada"), tokens.create("reader", "ada")
    assert tokens.caller(f"Bearer {wide}").role == "member"
    assert tokens.caller(f"Bearer {narrow}").role == "reader"
    change(tokens, database, "ada", role="reader")
    assert tokens.caller(f"Bearer {wide}").role == "reader"


def test_who_is_locked_out_is_out_at_once_and_comes_back(tokens, database):
    token = tokens.create("member", "ada")
    caller = tokens.caller(f"Bearer {token}")
    change(tokens, database, "ada", disabled=True)
    assert not tokens.holds(caller)
    for life in (tokens, Tokens(database)):
        with pytest.raises(AccessDenied):
            life.caller(f"Bearer {token}")
    change(tokens, database, "ada", disabled=False)
    assert tokens.holds(caller)


def test_two_changes_of_one_commit_do_not_undo_each_other(tokens, database):
    import threading

    gate = threading.Event()
    database.submit(lambda _: gate.wait(5))
    first = database.submit(lambda t: tokens.people.change(t, "ada", disabled=True))
    second = database.submit(lambda t: tokens.people.change(t, "ada", role="admin"))
    gate.set()
    first.result(), second.result()
    assert tokens.people.role("ada") is None


def test_the_owner_stays_an_administrator(tokens, database):
    owner = tokens.people.owner
    attempts = (
        lambda t: tokens.people.change(t, owner, role="reader"),
        lambda t: tokens.people.change(t, owner, disabled=True),
        lambda t: tokens.people.remove(t, owner),
    )
    for attempt in attempts:
        with pytest.raises(Conflict, match="stays its administrator"):
            database.submit(attempt).result()
    assert tokens.people.role(owner) == "admin"


def test_a_name_is_not_given_twice(tokens, database):
    token = tokens.create("member", "ada")
    database.submit(lambda t: tokens.people.remove(t, "ada")).result()
    with pytest.raises(AccessDenied):
        tokens.caller(f"Bearer {token}")
    with pytest.raises(Conflict, match="was removed"):
        database.submit(lambda t: tokens.people.add(t, "ada", "member", "root")).result()
    with pytest.raises(NotFound):
        change(tokens, database, "ada", disabled=False)


def test_an_agents_token_ends_with_its_node(tokens, database):
    token = tokens.create("agent", "n0")
    assert tokens.caller(f"Bearer {token}") == Caller("agent", "n0", tokens.caller(f"Bearer {token}").token)
    database.submit(lambda t: tokens.end_agents(t, ["n0", "n1"])).result()
    with pytest.raises(AccessDenied):
        tokens.caller(f"Bearer {token}")
