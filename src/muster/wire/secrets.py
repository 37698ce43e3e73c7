"""Secrets, by name; no message returns a value."""

from __future__ import annotations

from dataclasses import field

from muster.wire.codec import OMIT
from muster.wire.message import wire


@wire
class NewSecret:
    """The body of `PUT secrets/NAME`."""

    value: str = field(repr=False)
    shared: bool | None = field(default=None, metadata=OMIT)
    """Whether everybody's jobs may use it; None: unchanged, a new one is not shared."""


@wire
class SecretView:
    """When a secret was set, and by whom."""

    name: str
    created_at: float
    updated_at: float
    updated_by: str | None
    owner: str | None = field(default=None, metadata=OMIT)
    """Who may change and use it; None: administrators."""
    shared: bool = field(default=False, metadata=OMIT)
    """Everybody's jobs may use it."""
