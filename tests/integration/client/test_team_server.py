"""A server for a team: TLS with a pinned certificate, and a token."""

from __future__ import annotations

import dataclasses

import pytest

from muster.client.connect import connect
from muster.client.workspace import ServerRef, find_workspace
from muster.errors import AccessDenied, ServerUnavailable


def test_a_member_of_the_team_reaches_the_server(team: ServerRef) -> None:
    client = connect(dataclasses.replace(find_workspace(), server=team))
    assert client.runs() == []
    assert client.address.url.startswith("https://")


def test_a_wrong_token_is_refused(team: ServerRef) -> None:
    wrong = dataclasses.replace(team, token="wrong", token_file=None)
    with pytest.raises(AccessDenied):
        connect(dataclasses.replace(find_workspace(), server=wrong)).runs()


def test_a_certificate_that_is_not_the_pinned_one_is_refused(team: ServerRef) -> None:
    unpinned = dataclasses.replace(team, certificate=None)
    with pytest.raises(ServerUnavailable, match="certificate"):
        connect(dataclasses.replace(find_workspace(), server=unpinned))
