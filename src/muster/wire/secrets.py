"""Secrets, by name; no message gives a value back."""

from __future__ import annotations

from dataclasses import field

from muster.wire.message import wire


@wire
class NewSecret:
    """The body of `PUT secrets/NAME`."""

    value: str = field(repr=False)


@wire
class SecretView:
    """When a secret was set, and by whom."""

    name: str
    created_at: float
    updated_at: float
    updated_by: str | None
