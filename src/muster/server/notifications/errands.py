"""Deliveries that the child process makes, and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class HttpErrand:
    """A POST request."""

    id: str
    url: str
    headers: Mapping[str, str]
    body: str
    allowed: tuple[str, ...] | None = None
    """Networks of the server's own that may be reached nevertheless; None: all may."""
    kind: Literal["http"] = "http"


@dataclass(frozen=True)
class MailErrand:
    """An e-mail."""

    id: str
    to: str
    subject: str
    text: str
    smtp: SmtpSettings
    kind: Literal["mail"] = "mail"


@dataclass(frozen=True)
class SmtpSettings:
    """How e-mail is sent: the key `smtp` of workspace.json."""

    host: str
    sender: str
    port: int = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str = ""
    password: str = ""


Errand = HttpErrand | MailErrand


@dataclass(frozen=True)
class Outcome:
    """The outcome of a delivery."""

    id: str
    taken: bool
    answer: str
    after_s: float | None = None
    """How long the receiver asks to wait (`Retry-After`)."""
