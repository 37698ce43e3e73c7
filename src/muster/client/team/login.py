"""Login to a team's server: its certificate is checked by its fingerprint, and stored for a user or a folder."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import ssl
import time
import uuid
from pathlib import Path
from urllib.parse import urlsplit

from muster.client.team import known, trust
from muster.client.workspace import FOLDER, ServerEntry, WorkspaceFile
from muster.defaults import CONNECT_S, SERVER_PORT
from muster.errors import AccessDenied, Conflict, ServerUnavailable, UserError
from muster.host.files import PRIVATE, write_file
from muster.host.fingerprints import fingerprint, is_fingerprint_of
from muster.paths import WorkspacePaths
from muster.wire.codec import to_json

CERTIFICATE, TOKEN = "server.crt", "server.token"


def server_url(text: str) -> str:
    """The address in its stored form: with scheme and port."""
    url = text if "://" in text else f"https://{text}"
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.path.strip("/") or "@" in parts.netloc:
        raise UserError(f"{text!r} is not a server's address.", "Give `https://host:port`, as `muster up` prints it.")
    try:
        port = parts.port
    except ValueError:
        raise UserError(f"{text!r} has no valid port.", "Give `https://host:port`, as `muster up` prints it.") from None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port or SERVER_PORT}"


def certificate_of(url: str) -> str:
    """The certificate that a server presents, trusted or not."""
    parts = urlsplit(url)
    address = (parts.hostname or "", parts.port or SERVER_PORT)
    try:
        return ssl.get_server_certificate(address, timeout=CONNECT_S)
    except OSError as error:
        raise ServerUnavailable(
            f"no server answers at {url}: {error}",
            "Is it running (`muster up --host HOST --tls` on its machine), and does a firewall let you through?",
        ) from error


def pinned_certificate(url: str, wanted: str | None, typed: str = "") -> str | None:
    """The certificate to pin; None for a server whose certificate this machine trusts and nobody pinned.

    `typed`: what to repeat the login with, where that is more than the address.
    """
    if url.startswith("http://"):
        if wanted:
            raise UserError(f"{url} has no certificate, so it has no fingerprint.", "Use its https:// address.")
        return None
    shown = certificate_of(url)
    if wanted is None:
        if not _is_vouched_for(url):
            raise _unknown(url, shown, typed or url)
        return None
    if not is_fingerprint_of(wanted, shown):
        raise AccessDenied(
            f"the server at {url} shows another certificate: {fingerprint(shown)}, and {wanted} was expected",
            "Either the line is old (`muster up` prints the current one), or something is between you and the server.",
        )
    return shown


def remember(url: str, token: str, certificate: str | None, folder: Path | None = None) -> Path:
    """Store a server for a folder, or for the user; returns the folder it is stored in."""
    root = (folder.resolve() / FOLDER) if folder else known.servers_dir() / _name_of(url)
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    (root / ".gitignore").write_text("*\n")
    write_file(root / TOKEN, token + "\n", mode=PRIVATE)
    if certificate:
        write_file(root / CERTIFICATE, certificate, mode=PRIVATE)
    else:
        (root / CERTIFICATE).unlink(missing_ok=True)
    entry = ServerEntry(url, TOKEN, CERTIFICATE if certificate else None)
    made = WorkspaceFile(uuid.uuid4().hex, urlsplit(url).hostname or "server", time.time(), entry)
    # First, so that the file is trusted as soon as it is visible.
    trust.trust(root, made.id)
    write_file(WorkspacePaths(root).config, json.dumps(to_json(made), indent=2), mode=PRIVATE)
    if folder is None:
        known.use_server(root)
    return root


def forget(folder: Path | None = None) -> str | None:
    """Forget the server of a folder, or of the user; returns its address, None where there was none."""
    root = (folder.resolve() / FOLDER) if folder else known.user_server()
    if root is None or not (root / TOKEN).is_file():
        return None
    try:
        url = str(json.loads(WorkspacePaths(root).config.read_bytes())["server"]["url"])
    except (OSError, ValueError, KeyError, TypeError):
        url = "(unreadable)"
    shutil.rmtree(root)
    if folder is None:
        known.use_no_server()
    return url


def refuse_own_runs(folder: Path | None) -> None:
    """Refuse a folder whose workspace has runs of its own; None: there is no folder."""
    if folder is None:
        return
    root = folder.resolve() / FOLDER
    if WorkspacePaths(root).server_dir.exists():
        raise Conflict(
            f"{root.parent} has its own workspace, with its runs in {root}",
            "Log in from another folder, or without --here: then the server is used where no folder has a workspace.",
        )


def _is_vouched_for(url: str) -> bool:
    parts = urlsplit(url)
    try:
        with (
            socket.create_connection((parts.hostname or "", parts.port or SERVER_PORT), CONNECT_S) as plain,
            ssl.create_default_context().wrap_socket(plain, server_hostname=parts.hostname),
        ):
            return True
    except OSError:
        return False


def _unknown(url: str, certificate: str, typed: str) -> AccessDenied:
    return AccessDenied(
        f"the server at {url} has a certificate that this machine does not trust",
        f"Its fingerprint is {fingerprint(certificate)}. If `muster up` printed the same on the server's machine:\n"
        f"muster login {shlex.quote(typed)} --fingerprint {fingerprint(certificate)}",
    )


def _name_of(url: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "_", url.partition("://")[2])
