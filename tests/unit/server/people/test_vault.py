"""The workspace's key: where it comes from, and that another one opens nothing."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from muster.errors import Conflict, UserError
from muster.paths import WorkspacePaths
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
        ({"MUSTER_KEY": "too short"}, "MUSTER_KEY is no key"),
        ({"MUSTER_KEY_FILE": "/nowhere/key"}, "cannot be read"),
        ({"MUSTER_KEY_COMMAND": "echo SECRET; exit 3"}, "ended with 3"),
    ],
)
def test_a_wrong_key_is_refused_without_showing_it(tmp_path: Path, given: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load_vault(WorkspacePaths(tmp_path), given)
    assert "SECRET" not in str(caught.value) and "too short" not in str(caught.value)
