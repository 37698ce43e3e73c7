"""First tokens: by a first-time link, or by single sign-on."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

from muster.client.api import Client
from muster.client.team.login import server_url
from muster.client.team.sso import Code, id_token
from muster.errors import UserError
from muster.host.http import Address
from muster.wire.people import INVITE_PREFIX


@dataclass(frozen=True)
class Link:
    """A login link: an address, perhaps with an invitation behind the `#`.

    Behind the invitation follows the fingerprint of a self-signed certificate, by which the client recognizes the
    server.
    """

    url: str
    invite: str = ""
    fingerprint: str | None = None

    def __str__(self) -> str:
        known_by = f"&{self.fingerprint}" if self.fingerprint else ""
        return f"{self.url}/#{self.invite}{known_by}" if self.invite else self.url


def read_link(text: str) -> Link:
    """An address or a first-time link."""
    address, _, rest = text.strip().partition("#")
    invite, _, fingerprint = rest.partition("&")
    if rest and not invite.startswith(INVITE_PREFIX):
        raise UserError("what follows the # of the link is not an invitation.", "Copy the whole link, in quotes.")
    return Link(server_url(address), invite, fingerprint or None)


def sign_on(link: Link, certificate: str | None, show: Callable[[Code], None]) -> str:
    """A token by single sign-on."""
    client = Client(Address(link.url, "", certificate))
    return client.sign_on(id_token(client.sso(), show), socket.gethostname()[:100]).token


def join(link: Link, certificate: str | None) -> str:
    """Exchange an invitation, which works once, for a token."""
    return Client(Address(link.url, "", certificate)).join(link.invite, socket.gethostname()[:100]).token
