"""Who may do what."""

import stat

import pytest

from muster.errors import AccessDenied
from muster.server.database.connection import Database
from muster.server.people.access import Caller, Tokens, allow


@pytest.fixture
def tokens(tmp_path):
    database = Database(f"sqlite:///{tmp_path}/muster.db")
    yield Tokens(database)
    database.close()


def test_a_token_is_known_by_its_hash_alone(tokens, tmp_path):
    token = tokens.create("user", "ada")
    assert tokens.caller(f"Bearer {token}") == Caller("user", "ada")
    assert token.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer nonsense", "Basic abc"])
def test_anything_else_is_refused(tokens, header):
    with pytest.raises(AccessDenied):
        tokens.caller(header)


def test_an_expired_token_is_refused(tokens):
    with pytest.raises(AccessDenied, match="expired"):
        tokens.caller(f"Bearer {tokens.create('user', 'ada', lifetime_s=-1)}")


def test_the_owners_token_is_private_and_stays(tokens, tmp_path):
    path = tmp_path / "admin.token"
    token = tokens.admin(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert tokens.admin(path) == token


@pytest.mark.parametrize(
    ("role", "method", "path", "allowed"),
    [
        ("admin", "POST", "/api/v1/shutdown", True),
        ("user", "POST", "/api/v1/runs", True),
        ("user", "POST", "/api/v1/shutdown", False),
        ("user", "POST", "/api/v1/agents/hello", False),
        ("reader", "GET", "/api/v1/runs", True),
        ("reader", "POST", "/api/v1/runs", False),
        ("agent", "POST", "/api/v1/agents/hello", True),
        ("agent", "GET", "/api/v1/snapshots/abc/archive", True),
        ("agent", "POST", "/api/v1/runs", False),
        ("agent", "GET", "/api/v1/runs", False),
    ],
)
def test_roles_cover_what_they_need(role, method, path, allowed):
    if allowed:
        allow(Caller(role, "x"), method=method, path=path)
    else:
        with pytest.raises(AccessDenied, match=role):
            allow(Caller(role, "x"), method=method, path=path)
