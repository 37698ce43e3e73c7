"""Finds the server of a workspace, and starts one where none runs."""

from __future__ import annotations

import json
import os
import socket
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from muster.client import server_process
from muster.client.api import Client
from muster.client.calls import API
from muster.client.server_process import has_server, start_lock, start_server, wait_until_gone
from muster.client.workspace import ServerRef, WorkspaceRef, find_workspace, has_kept_anything, is_home, locate
from muster.defaults import CONNECT_S, PROTOCOL_VERSION
from muster.errors import AccessDenied, NotFound, ProtocolMismatch, ServerUnavailable
from muster.host.http import Address, is_loopback
from muster.host.network import reachable
from muster.host.server import ServerConnection
from muster.paths import NodePaths, WorkspacePaths
from muster.version import VERSION
from muster.wire.codec import from_file
from muster.wire.workspace import Announcement


def connect(ref: WorkspaceRef | None = None, start: bool = True) -> Client:
    """A client of the workspace's server; with `start` an embedded server is started where none runs."""
    workspace = ref or find_workspace()
    if workspace.server is not None:
        return Client(_team_address(workspace.server))
    paths = workspace.paths
    return Client(_embedded_address(paths, start), reconnect=lambda: _embedded_address(paths, start))


def connect_to_read() -> Client:
    """A client for a command that only reads: it creates no workspace, and starts no server for an unused one."""
    root = locate()
    if is_home(root) and not has_kept_anything(root) and not os.environ.get("MUSTER_SERVER"):
        raise NothingKept(
            f"there is no workspace in or above {Path.cwd()}, and nothing is kept in {root}",
            "`muster init` makes one here; `muster workspaces` lists those that you have used.",
        )
    return connect()


class NothingKept(NotFound):
    """No workspace was ever used from here."""


def _team_address(server: ServerRef) -> Address:
    if not server.url.startswith(("unix:", "http://", "https://")):
        raise ServerUnavailable(
            f"{server.url!r} is not a server's address",
            "Give `https://host:port`, `http://127.0.0.1:port` or `unix:/path`.",
        )
    address = Address(server.url, server.read_token(), server.read_certificate())
    refuse_plain(address)
    refuse_stranger(address)
    return address


def refuse_stranger(address: Address) -> None:
    """Refuse a server that does not answer, or not in a version that this client supports."""
    verdict = compatibility(_version_of(address))
    if verdict.action != "use" and verdict.message:
        raise ProtocolMismatch(verdict.message, verdict.hint)


def refuse_plain(address: Address) -> None:
    """Refuse to send a token unencrypted through a network, unless the user allows it."""
    parts = urlsplit(address.url)
    host = parts.hostname or ""
    if parts.scheme != "http" or not address.token or is_loopback(host) or os.environ.get("MUSTER_PLAIN_HTTP") == "1":
        return
    raise AccessDenied(
        f"the server's address {address.url} has no TLS, and the token could be read on its way",
        "Use https:// (`muster up --tls`), or a tunnel to this machine; MUSTER_PLAIN_HTTP=1 sends it all the same.",
    )


def public_url(client: Client) -> str | None:
    """The URL at which others reach the server of a client; None where it serves only this machine."""
    if not client.address.url.startswith("unix:"):
        return client.address.url.rstrip("/")
    return announced_url(find_workspace().paths)


def announced_url(paths: WorkspacePaths) -> str | None:
    """The URL at which others reach a workspace's own server, as it announces."""
    found = announced(paths)
    return reachable(found.url) if found is not None and found.url else None


_TRIES = 2
"""A server that has just started may be ended by others, or answer late on a busy machine."""


def _embedded_address(paths: WorkspacePaths, start: bool) -> Address:
    found = _running(paths)
    if found is not None:
        return found
    if not start:
        raise ServerUnavailable(
            f"no server runs for the workspace {paths.root}", "Any command that needs it starts it."
        )
    paths.server_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with server_process.meanwhile(f"starting the server of {paths.root.parent}"), start_lock(paths):
        for remaining in reversed(range(_TRIES)):
            # A server that is shutting down holds the workspace until its agents have left; others may be starting.
            wait_until_gone(paths, lambda: _running(paths) is not None)
            found = _running(paths)
            if found is None:
                try:
                    start_server(paths)
                except ServerUnavailable:
                    # `muster up` was a moment faster: wait for it.
                    if remaining and has_server(paths):
                        continue
                    raise
                found = _running(paths)
            if found is not None:
                break
    if found is None:
        raise ServerUnavailable(
            f"the server of {paths.root} started and went away again", f"Its log is {paths.server_log}."
        )
    return found


def _running(paths: WorkspacePaths) -> Address | None:
    """The address of the running server that this client can use; an older idle one is ended first."""
    info = announced(paths)
    if info is None:
        return None
    if info.host not in (None, socket.gethostname()):
        raise ServerUnavailable(
            f"the server of {paths.root} runs on the machine {info.host!r} (process {info.pid}); "
            f"this one is {socket.gethostname()!r}",
            "The workspace is on a filesystem that both share. Work on that machine, or end the server there with "
            f"`muster down`. If that machine is gone for good, remove {paths.server_info}.",
        )
    address = Address(f"unix:{info.socket}", _admin_token(paths))
    try:
        verdict = compatibility(_version_of(address))
    except ServerUnavailable:
        return None
    if verdict.action == "refuse":
        raise ProtocolMismatch(verdict.message, verdict.hint)
    if verdict.action == "replace":
        Client(address).shutdown()
        wait_until_gone(paths)
        return None
    return address


@dataclass(frozen=True)
class Compatibility:
    """What to do with a server of some version: use, replace (an embedded one) or refuse it."""

    action: Literal["use", "replace", "refuse"]
    message: str = ""
    hint: str = ""


@dataclass(frozen=True)
class ServerVersion:
    """The part of a server's health that any version reports."""

    version: str
    protocol: int
    active_runs: int


def compatibility(server: ServerVersion, version: str = VERSION, protocol: int = PROTOCOL_VERSION) -> Compatibility:
    """Decide from the server's health: it must speak our protocol, and an older idle server is replaced."""
    theirs, their_protocol, active = server.version, server.protocol, server.active_runs
    sides = f"the server is Muster {theirs} (protocol {their_protocol}), this client {version} (protocol {protocol})"
    if their_protocol > protocol:
        return Compatibility("refuse", sides, f"Upgrade the client: pip install 'muster-ml>={theirs}'.")
    if their_protocol < protocol:
        if active == 0:
            return Compatibility("replace", sides, "Upgrade the server.")
        hint = f"It has {active} active runs. Wait for them, or end it with `muster down --force`; then upgrade it."
        return Compatibility("refuse", sides, hint)
    if _order(theirs) < _order(version) and active == 0:
        return Compatibility("replace")
    return Compatibility("use")


def _order(version: str) -> tuple[int, ...]:
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in version.split("+")[0].split("."))


def _version_of(address: Address) -> ServerVersion:
    with closing(ServerConnection(address, CONNECT_S)) as connection:
        health = connection.request("GET", f"{API}/health")
    return ServerVersion(
        str(health.get("version", "0")), int(health.get("protocol", 0)), int(health.get("active_runs", 0))
    )


def living_agents(paths: WorkspacePaths) -> list[str]:
    """Nodes of this machine whose agents are running, with or without a server."""
    folders = sorted(paths.nodes.iterdir()) if paths.nodes.is_dir() else []
    return [folder.name for folder in folders if NodePaths(folder).lock.exists() and NodePaths(folder).agent_lives()]


def announced(paths: WorkspacePaths) -> Announcement | None:
    """The last server's announcement; it may be gone."""
    try:
        return from_file(Announcement, json.loads(paths.server_info.read_bytes()))
    except (FileNotFoundError, ValueError):
        return None
    except PermissionError as error:
        raise AccessDenied(
            f"the workspace {paths.root} belongs to somebody else: {error}",
            "Use `muster init` to have one of your own.",
        ) from error


def _admin_token(paths: WorkspacePaths) -> str:
    try:
        return paths.admin_token.read_text().strip()
    except FileNotFoundError:
        return ""
