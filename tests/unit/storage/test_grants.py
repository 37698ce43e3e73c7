"""Grants open what they name, while they hold, and nothing else."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import AccessDenied
from muster.storage.grants import Grant, check, covers, sign, verify
from muster.storage.sas import Signer, permissions
from muster.wire.data.access import READ, WRITE

KEY = b"k" * 32
NOW = 1_000_000.0
GRANT = Grant("id", "store", "runs/a", True, READ, NOW, NOW + 60, "run/r/1")


def test_a_grant_is_read_back_as_it_was_signed() -> None:
    assert verify(sign(GRANT, KEY), KEY, NOW + 1) == GRANT


@pytest.mark.parametrize(
    ("grant", "at", "message"),
    [
        (GRANT, NOW + 60, "expired 0 s ago"),
        (GRANT, NOW + 4000, "expired 3940 s ago"),
        (replace(GRANT, not_before=NOW + 30), NOW, "not valid yet: it begins in 30 s"),
    ],
)
def test_a_grant_holds_only_in_its_time(grant: Grant, at: float, message: str) -> None:
    with pytest.raises(AccessDenied, match=message):
        verify(sign(grant, KEY), KEY, at)


def test_a_grant_of_another_workspace_is_refused() -> None:
    with pytest.raises(AccessDenied, match="signature"):
        verify(sign(GRANT, b"other" * 8), KEY, NOW)


@pytest.mark.parametrize("change", [{"path": ""}, {"scope": WRITE}, {"expires_at": NOW + 1e9}, {"store": "other"}])
def test_a_widened_grant_is_refused(change: dict[str, object]) -> None:
    """Somebody puts another payload before the signature that they have."""
    prefix, _, mac = sign(GRANT, KEY).split(".")
    wider = json.dumps({**vars(GRANT), **change}, separators=(",", ":"), sort_keys=True).encode()
    token = f"{prefix}.{base64.urlsafe_b64encode(wider).decode().rstrip('=')}.{mac}"
    with pytest.raises(AccessDenied, match="signature"):
        verify(token, KEY, NOW)


@given(st.integers(min_value=0, max_value=400), st.integers(min_value=1, max_value=127))
def test_a_tampered_token_is_refused(place: int, flip: int) -> None:
    token = sign(GRANT, KEY)
    at = place % len(token)
    changed = token[:at] + chr(ord(token[at]) ^ flip) + token[at + 1 :]
    try:
        # The last letter of base64 has bits that mean nothing: the grant itself is still the same.
        assert verify(changed, KEY, NOW) == GRANT
    except AccessDenied:
        pass


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "mg1..", "mg1.e30.e30", "ü.ü.ü"])
def test_what_is_no_grant_is_refused(token: str) -> None:
    with pytest.raises(AccessDenied):
        verify(token, KEY, NOW)


@pytest.mark.parametrize("path", ["runs/a", "runs/a/x", "runs/a/b/c"])
def test_a_grant_to_a_folder_covers_what_is_below(path: str) -> None:
    check(GRANT, store="store", path=path, scope=READ)


@pytest.mark.parametrize(
    ("store", "path", "scope"),
    [
        ("store", "runs/ab", READ),
        ("store", "runs", READ),
        ("store", "", READ),
        ("store", "runs/b/x", READ),
        ("other", "runs/a", READ),
        ("store", "runs/a/x", WRITE),
    ],
)
def test_a_grant_covers_nothing_else(store: str, path: str, scope: str) -> None:
    with pytest.raises(AccessDenied):
        check(GRANT, store=store, path=path, scope=scope)


def test_a_grant_to_a_file_does_not_cover_a_folder_of_that_name() -> None:
    assert covers("a", "a", folder=False)
    assert not covers("a", "a/b", folder=False)
    assert covers("", "anything/at/all", folder=True)


def test_a_sas_says_what_it_may_do_and_until_when() -> None:
    assert (
        permissions("sv=1&sp=rl&se=2030-01-01T00:00:00Z&sig=x") == "its SAS may read, list, until 2030-01-01T00:00:00Z"
    )
    assert permissions("sv=1&si=policy&sig=x").startswith("its SAS says nothing of what it may do")


def test_what_makes_a_container_makes_nothing_else() -> None:
    signer = Signer("blob", "account", "a2V5", "images", 1_700_000_000.0, 1_700_000_300.0)
    fields = dict(parse_qsl(signer.creation()))
    assert {name: fields[name] for name in ("ss", "srt", "sp", "spr")} == {
        "ss": "b", "srt": "c", "sp": "c", "spr": "https",
    }  # fmt: skip
