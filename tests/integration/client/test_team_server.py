"""A server for a team: TLS with a pinned certificate, and a token."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client.connect import connect
from muster.client.workspace import ServerRef, find_workspace
from muster.errors import AccessDenied, ServerUnavailable


@pytest.fixture
def team(workspace: Path) -> Iterator[ServerRef]:
    """A server on a TLS port; what a member of the team needs to reach it."""
    root = workspace / ".muster"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ready, told = os.pipe()
    command = [sys.executable, "-m", "muster.server", "--workspace", str(root), "--tcp", f"127.0.0.1:{port}"]
    command += ["--tls-self-signed", "--foreground", "--ready-fd", str(told)]
    with subprocess.Popen(command, pass_fds=(told,), stderr=subprocess.DEVNULL) as process:
        os.close(told)
        try:
            assert os.read(ready, 1), "the server did not start"
            url, tls = f"https://127.0.0.1:{port}", root / "server/tls/server.crt"
            yield ServerRef(url, token_file=root / "server/admin.token", certificate=tls)
        finally:
            os.close(ready)
            process.terminate()


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
