"""The workspace's key: where it comes from, and that another one opens nothing."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest
from tests.unit.server.conftest import Server

from muster.errors import Conflict, UserError
from muster.paths import WorkspacePaths
from muster.server.data import datastores, encryption
from muster.server.people import secrets
from muster.server.people.vault import Vault, load_vault

KEY = base64.b64encode(b"a" * 32).decode()


def test_what_was_sealed_is_opened_in_its_place_only() -> None:
    vault = Vault(b"a" * 32)
    sealed = vault.seal({"account_key": "SECRET"}, "the credential of x")
    assert "SECRET" not in sealed
    assert vault.open(sealed, "the credential of x") == {"account_key": "SECRET"}
    with pytest.raises(Conflict, match="the credential of y was sealed with another key"):
        vault.open(sealed, "the credential of y")


def test_another_key_opens_nothing_and_signs_otherwise() -> None:
    sealed = Vault(b"a" * 32).seal({}, "x")
    with pytest.raises(Conflict) as caught:
        Vault(b"b" * 32).open(sealed, "x")
    assert "MUSTER_KEY_FILE" in caught.value.hint
    assert Vault(b"a" * 32).grant_key != Vault(b"b" * 32).grant_key


def test_a_key_is_made_on_first_use_in_a_private_file(tmp_path: Path) -> None:
    paths = WorkspacePaths(tmp_path)
    first = load_vault(paths, {})
    key_file = tmp_path / "server/workspace.key"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert load_vault(paths, {}).key_id == first.key_id


def test_a_key_comes_from_the_environment_a_file_or_a_command(tmp_path: Path) -> None:
    paths = WorkspacePaths(tmp_path)
    (tmp_path / "key").write_text(KEY + "\n")
    wanted = Vault(b"a" * 32).key_id
    for given in (
        {"MUSTER_KEY": KEY},
        {"MUSTER_KEY_FILE": str(tmp_path / "key")},
        {"MUSTER_KEY_COMMAND": f"cat {tmp_path}/key"},
    ):
        assert load_vault(paths, given).key_id == wanted
    assert not (tmp_path / "server").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"MUSTER_KEY": "too short"}, "MUSTER_KEY is not a key"),
        ({"MUSTER_KEY_FILE": "/nowhere/key"}, "cannot be read"),
        ({"MUSTER_KEY_COMMAND": "echo SECRET; exit 3"}, "ended with 3"),
    ],
)
def test_a_wrong_key_is_refused_without_showing_it(tmp_path: Path, given: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load_vault(WorkspacePaths(tmp_path), given)
    assert "SECRET" not in str(caught.value) and "too short" not in str(caught.value)


@pytest.fixture
def kept(server: Server) -> Server:
    """A server whose key lies in its folder, with a secret and a datastore's credential."""
    server.context.vault = load_vault(server.context.paths, {})
    assert server.call("PUT", "/secrets/TOKEN", {"value": "s3cret-value"})[0] == 201
    blob = {"account": "a", "container": "c"}
    body = {"name": "blob", "kind": "azure-blob", "options": blob, "credential": {"account_key": "U0VDUkVU"}}
    assert server.call("POST", "/datastores", body)[0] == 201
    return server


def opened(server: Server) -> tuple[str, str | None]:
    context = server.context
    value = context.database.read_now(lambda c: secrets.values(context, c, ["TOKEN"], None))["TOKEN"]
    return value, context.database.read_now(lambda c: datastores.find(context, c, "blob")).credential.account_key


def test_the_key_of_secrets_can_be_changed(kept: Server) -> None:
    file = kept.context.paths.server_dir / "workspace.key"
    old, old_id = file.read_text(), kept.context.vault.key_id
    status, answer = kept.call("POST", "/encryption/rotate-secrets")
    assert (status, answer["count"]) == (200, 2)
    assert answer["key"] != old_id
    assert old not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert opened(kept) == ("s3cret-value", "U0VDUkVU")
    kept.context.vault = load_vault(kept.context.paths, {})
    assert opened(kept) == ("s3cret-value", "U0VDUkVU")
    kept.context.vault = Vault(base64.b64decode(old))
    with pytest.raises(Conflict):
        opened(kept)


@pytest.mark.parametrize("dies_in", ["_reseal", "end_change"])
def test_a_death_while_it_is_changed_loses_nothing(kept: Server, dies_in: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(encryption if dies_in == "_reseal" else Vault, dies_in, die)
    if dies_in == "_reseal":
        kept.context.vault.begin_change()
    else:
        with pytest.raises(KeyboardInterrupt):
            encryption.rotate_secrets(kept.context)
    monkeypatch.undo()
    # The next life of the server.
    kept.context.vault = load_vault(kept.context.paths, {})
    assert kept.context.vault.is_changing
    assert opened(kept) == ("s3cret-value", "U0VDUkVU")
    assert encryption.finish_secrets(kept.context) == 2
    assert not kept.context.vault.is_changing
    kept.context.vault = load_vault(kept.context.paths, {})
    assert opened(kept) == ("s3cret-value", "U0VDUkVU")


def test_a_key_from_elsewhere_is_not_changed_here(server: Server) -> None:
    assert server.call("POST", "/encryption/rotate-secrets")[0] == 409
