"""The server's in-memory state of notifications: how mail is sent, and what is being sent now."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from muster.errors import UserError
from muster.server.notifications.errands import SmtpSettings
from muster.wire.codec import Json

CHILDREN_AT_ONCE = 4
_KEYS = {"host", "port", "security", "user", "password_file", "from"}
_EXAMPLE = '{"smtp": {"host": "mail.example.org", "from": "muster@example.org"}}'
NO_SMTP = f"An administrator sets in workspace.json how mail is sent, and restarts the server: {_EXAMPLE}."


@dataclass
class NotificationsState:
    """Lives on the event loop."""

    smtp: SmtpSettings | None = None
    """None: no mail is sent."""
    url: str | None = None
    """Where a team's browsers reach the server."""
    sending: set[str] = field(default_factory=set)
    """Subscriptions that something is being sent to."""
    stopping: threading.Event = field(default_factory=threading.Event)
    """The server is shutting down: receivers are no longer waited for."""
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CHILDREN_AT_ONCE))
    """Held while a child process sends."""


def read_smtp(config: Json) -> SmtpSettings | None:
    """The key `smtp` of workspace.json; a password is in a file of its own."""
    if config is None:
        return None
    if not isinstance(config, Mapping) or not config.keys() <= _KEYS or not {"host", "from"} <= config.keys():
        raise UserError(
            f"`smtp` in workspace.json holds {', '.join(sorted(_KEYS))}; `host` and `from` are needed.", _EXAMPLE
        )
    security = config.get("security", "starttls")
    if security not in ("starttls", "tls", "none"):
        raise UserError(f"`smtp.security` in workspace.json is {security!r}: use starttls, tls or none.")
    port = config.get("port", 465 if security == "tls" else 587)
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        raise UserError(f"`smtp.port` in workspace.json is {port!r}: use a number up to 65535.")
    return SmtpSettings(
        str(config["host"]),
        str(config["from"]),
        port,
        security,
        str(config.get("user", "")),
        _password(config.get("password_file")),
    )


def _password(path: Json) -> str:
    if path is None:
        return ""
    try:
        return Path(str(path)).read_text().strip()
    except OSError as error:
        raise UserError(f"`smtp.password_file` in workspace.json, {path}, cannot be read: {error.strerror}") from error
