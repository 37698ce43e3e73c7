"""Encryption at rest."""

from __future__ import annotations

from dataclasses import field

from muster.wire.codec import OMIT
from muster.wire.message import wire


@wire
class NewKey:
    """The body of `POST encryption/rotate`: where the new key comes from."""

    key_file: str | None = field(default=None, metadata=OMIT)
    key_env: str | None = field(default=None, metadata=OMIT)
    key_command: str | None = field(default=None, metadata=OMIT)


@wire
class EncryptionConfig(NewKey):
    """`encryption` in workspace.json: the key for writing, and older ones that may be needed for reading."""

    previous: tuple[NewKey, ...] = field(default=(), metadata=OMIT)


@wire
class EncryptionView:
    """Whether the store is encrypted, with which key, and where the key comes from."""

    encrypted: bool
    key: str | None
    """The key's id."""
    source: str | None
    """key_file | key_env | key_command"""
    rotating: bool


@wire
class RotatedKey(EncryptionView):
    """The answer to a rotation."""

    files: int
    """How many files have the new key now."""


@wire
class SecretsResealed:
    """The answer to a change of the key that seals secrets and credentials."""

    key: str
    """The new key's id."""
    count: int
    """How many were resealed."""
