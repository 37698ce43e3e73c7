"""Finding the right server, and telling what is wrong with the others."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sites.rest_server import RestServer

from muster.client.connect import ServerVersion, compatibility, connect
from muster.client.server_process import last_lines, server_environment
from muster.client.workspace import ServerRef, WorkspaceRef, create_workspace
from muster.defaults import PROTOCOL_VERSION
from muster.errors import ProtocolMismatch, ServerUnavailable
from muster.version import VERSION

HEALTH = {"version": VERSION, "protocol": PROTOCOL_VERSION, "active_runs": 0}


@pytest.fixture
def server() -> Iterator[RestServer]:
    with RestServer() as running:
        running.on("GET", "/api/v1/health", HEALTH)
        yield running


@pytest.fixture
def ref(tmp_path: Path) -> WorkspaceRef:
    made = create_workspace(tmp_path, "w")
    made.paths.server_dir.mkdir()
    return made


def announce(ref: WorkspaceRef, server: RestServer, **changes: Any) -> None:
    info = {"socket": str(server.socket), "pid": 1, "host": socket.gethostname(), "version": VERSION, **changes}
    ref.paths.server_info.write_text(json.dumps(info))
    ref.paths.admin_token.write_text("secret\n")


def test_a_running_server_is_used_with_its_token(server: RestServer, ref: WorkspaceRef) -> None:
    announce(ref, server)
    address = connect(ref, start=False).address
    assert (address.url, address.token) == (server.url, "secret")


def test_the_announcement_of_a_server_of_another_version_is_read(server: RestServer, ref: WorkspaceRef) -> None:
    announce(ref, server, colour="blue")
    assert connect(ref, start=False).address.url == server.url


def test_without_a_server_nothing_is_started_unless_asked(ref: WorkspaceRef) -> None:
    with pytest.raises(ServerUnavailable, match="no server runs"):
        connect(ref, start=False)


def test_a_stale_announcement_counts_as_no_server(ref: WorkspaceRef, server: RestServer, tmp_path: Path) -> None:
    announce(ref, server, socket=str(tmp_path / "gone"))
    with pytest.raises(ServerUnavailable, match="no server runs"):
        connect(ref, start=False)


def test_a_server_on_another_machine_is_named(ref: WorkspaceRef, server: RestServer) -> None:
    announce(ref, server, host="other-machine")
    with pytest.raises(ServerUnavailable, match="other-machine") as caught:
        connect(ref)
    assert str(ref.paths.server_info) in caught.value.hint


def test_an_older_idle_server_is_asked_to_leave(ref: WorkspaceRef, server: RestServer) -> None:
    announce(ref, server)
    server.on("GET", "/api/v1/health", {**HEALTH, "version": "0.0.9"})
    server.on("POST", "/api/v1/shutdown", {"stopping": True})
    with pytest.raises(ServerUnavailable, match="no server runs"):
        connect(ref, start=False)
    assert server.requests[-1].json == {"force": False}


def test_a_team_server_with_another_protocol_is_refused(server: RestServer, ref: WorkspaceRef) -> None:
    server.on("GET", "/api/v1/health", {**HEALTH, "version": "9.0", "protocol": 9})
    with pytest.raises(ProtocolMismatch, match="protocol 9"):
        connect(WorkspaceRef(ref.root, ref.id, ref.name, ServerRef(server.url)))


@pytest.mark.parametrize(
    ("server_version", "action", "hint"),
    [
        (ServerVersion("0.1.0", 1, 3), "use", ""),
        (ServerVersion("0.2.0", 1, 0), "use", ""),
        (ServerVersion("0.0.9", 1, 0), "replace", ""),
        (ServerVersion("0.0.9", 1, 1), "use", ""),
        (ServerVersion("0.0.9", 0, 0), "replace", "Upgrade the server"),
        (ServerVersion("0.0.9", 0, 2), "refuse", "2 active runs"),
        (ServerVersion("2.0.0", 2, 0), "refuse", "Upgrade the client"),
    ],
)
def test_what_to_do_with_a_server_of_some_version(server_version: ServerVersion, action: str, hint: str) -> None:
    decided = compatibility(server_version, version="0.1.0", protocol=1)
    assert decided.action == action
    assert hint in decided.hint


def test_the_servers_environment_is_a_known_base() -> None:
    shell = {"HOME": "/h", "PATH": "/bin", "RANK": "3", "PYTHONUNBUFFERED": "1", "MUSTER_TOKEN": "s", "MUSTER_X": "1"}
    assert server_environment(shell) == {"HOME": "/h", "PATH": "/bin", "MUSTER_X": "1"}


def test_builders_of_environments_see_where_the_person_gets_packages_from() -> None:
    theirs = {"PIP_INDEX_URL": "https://mirror/simple", "UV_INDEX": "https://mirror/simple", "PYENV_ROOT": "/py"}
    redirecting = {"PIP_PREFIX": "/p", "PIP_USER": "1", "PIP_TARGET": "/t"}
    assert server_environment({"PATH": "/bin", **theirs, **redirecting}) == {"PATH": "/bin", **theirs}


def test_nothing_of_a_rank_reaches_a_server_that_it_starts() -> None:
    rank = {"PATH": "/bin", "MUSTER_RUN_ID": "r", "MUSTER_EVENTS_FILE": "f", "PYTHONPATH": "/node/runtime"}
    assert server_environment(rank) == {"PATH": "/bin"}


def test_the_last_lines_of_a_log_are_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {n}\n" for n in range(5000)))
    assert last_lines(log, 2) == "  line 4998\n  line 4999"
    assert last_lines(tmp_path / "none") == "  (no log)"


def test_the_words_of_earlier_servers_are_not_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("of an earlier server\n")
    before = log.stat().st_size
    assert last_lines(log, since=before) == "  (nothing)"
    log.write_text("of an earlier server\nof this one\n")
    assert last_lines(log, since=before) == "  of this one"
