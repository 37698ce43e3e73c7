"""First-time links: exchanged once for a token, and a folder is made a workspace of that server."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from muster.client.api import Client
from muster.client.connect import refuse_plain
from muster.client.sso import Code, id_token
from muster.client.workspace import WorkspaceRef, create_workspace
from muster.errors import Conflict, UserError
from muster.host.files import PRIVATE, write_file
from muster.host.http import Address
from muster.wire.people import INVITE_PREFIX, Myself

TOKEN_FILE = "token"
CERTIFICATE_FILE = "server.crt"


@dataclass(frozen=True)
class Link:
    """What somebody was given to log in with: an address, perhaps with an invitation behind the `#`."""

    url: str
    invite: str = ""


def read_link(text: str) -> Link:
    """An address or a first-time link."""
    parts = urlsplit(text.strip())
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise UserError(
            f"{text[:80]!r} is no address of a server.", "Give https://HOST:PORT, or the link you were sent."
        )
    if parts.fragment and not parts.fragment.startswith(INVITE_PREFIX):
        raise UserError("what follows the # of the link is no invitation.", "Copy the whole link, in quotes.")
    return Link(f"{parts.scheme}://{parts.netloc}", parts.fragment)


def sign_on(link: Link, certificate: str | None, show: Callable[[Code], None]) -> str:
    """A token by single sign-on."""
    refuse_plain(Address(link.url, "secret"))
    client = Client(Address(link.url, "", certificate))
    return client.sign_on(id_token(client.sso(), show), socket.gethostname()[:100]).token


def log_in(folder: Path, link: Link, token: str, certificate: str | None) -> tuple[WorkspaceRef, Myself]:
    """Make a folder a workspace of the server; an invitation is exchanged for a token on the way."""
    root = folder.resolve() / ".muster"
    if (root / "server" / "muster.db").exists():
        raise Conflict(
            f"{folder.resolve()} has a workspace of its own, with runs in it.", "Log in in another folder (--folder)."
        )
    refuse_plain(Address(link.url, link.invite or token))
    if link.invite:
        token = Client(Address(link.url, "", certificate)).join(link.invite, socket.gethostname()[:100]).token
    me = Client(Address(link.url, token, certificate)).myself()
    ref = create_workspace(folder, exist_ok=True)
    write_file(ref.root / TOKEN_FILE, token, mode=PRIVATE)
    server = {"url": link.url, "token_file": TOKEN_FILE}
    if certificate is not None:
        write_file(ref.root / CERTIFICATE_FILE, certificate)
        server["certificate"] = CERTIFICATE_FILE
    config = json.loads(ref.paths.config.read_bytes())
    write_file(ref.paths.config, json.dumps({**config, "server": server}, indent=2), mode=PRIVATE)
    return ref, me
