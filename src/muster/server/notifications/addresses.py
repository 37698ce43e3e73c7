"""Addresses of receivers: how people write them, and how they are shown without secrets. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from muster.errors import JobError
from muster.wire.notifications.receivers import Kind

_PREFIXES: Mapping[str, Kind] = {"slack+": "slack", "teams+": "teams", "ntfy+": "ntfy"}
_HOSTS: tuple[tuple[str, Kind], ...] = (
    ("hooks.slack.com", "slack"),
    ("hooks.slack-gov.com", "slack"),
    (".webhook.office.com", "teams"),
    (".logic.azure.com", "teams"),
    (".api.powerplatform.com", "teams"),
    ("ntfy.sh", "ntfy"),
)
_MAIL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_HINT = (
    "Write https://… (a webhook; slack+https://…, teams+https://… and ntfy+https://… say in which form), or "
    "mailto:ada@example.org."
)


@dataclass(frozen=True)
class Target:
    """Where notifications are sent, and in which form."""

    kind: Kind
    address: str
    """A URL, or an e-mail address."""

    @property
    def shown(self) -> str:
        """The address without its secret part, which is enough to post there."""
        if self.kind == "mail":
            return self.address
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" + ("/…" if parts.path.strip("/") else "")


def looks_like_address(text: str) -> bool:
    """Whether it looks like an address; such a text cannot be a receiver's name."""
    return ":" in text or "@" in text or "/" in text


def read_address(text: str) -> Target:
    """Parse a target as people write it; raises JobError."""
    text = text.strip()
    mail = text.removeprefix("mailto:")
    if "://" not in text and (mail != text or "@" in text):
        if not _MAIL.fullmatch(mail) or ".." in mail:
            raise JobError(f"{mail[:100]!r} is not an e-mail address", _HINT)
        return Target("mail", mail)
    prefix = next((item for item in _PREFIXES if text.startswith(item)), "")
    url = text.removeprefix(prefix)
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise JobError(f"{url[:100]!r} is not an address", _HINT) from None
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or not _is_plain(url):
        raise JobError(f"{_without_secret(url)!r} is not an address that notifications can be sent to", _HINT)
    return Target(_PREFIXES[prefix] if prefix else _kind_of(host), url)


def _kind_of(host: str) -> Kind:
    return next(
        (kind for known, kind in _HOSTS if host == known or (host.endswith(known) and known[0] == ".")), "webhook"
    )


def _is_plain(url: str) -> bool:
    return url.isascii() and not any(char <= " " or char in '"<>\\^`{|}\x7f' for char in url)


def _without_secret(url: str) -> str:
    return url.split("/", 3)[0][:40] + ("//…" if "//" in url else "")
