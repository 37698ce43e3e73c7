"""Credentials of endpoints: two keys each, or tokens that a key signs. Sealed in the database."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from muster.server.context import Context
from muster.wire.serving.endpoints import AuthMode, EndpointKeys, KeyKind

TOKEN_S = 3600
_TOKEN_PREFIX = "muster_endpoint_"


@dataclass(frozen=True)
class Kept:
    """The secrets of one endpoint."""

    primary: str = field(repr=False)
    secondary: str = field(repr=False)
    signing: str = field(repr=False)
    authority: str = ""
    """The certificate that clients trust, if the endpoint uses TLS: its own authority's, or the given one."""
    authority_key: str = field(default="", repr=False)
    """Empty if the certificate was given."""
    certificate: str = ""
    private_key: str = field(default="", repr=False)
    certified_host: str = ""
    """The address for which the certificate was made."""
    inner_key: str = field(default="", repr=False)
    """Empty until tokens are first revoked: then the `signing` key of that time."""

    def inner(self, run: str) -> str:
        """The key that the front door presents to the replicas of a run, which know it from their start on."""
        return hmac.new((self.inner_key or self.signing).encode(), f"inner/{run}".encode(), hashlib.sha256).hexdigest()


def fresh() -> Kept:
    return Kept(_key(), _key(), _key())


def seal(context: Context, endpoint: str, kept: Kept) -> str:
    return context.vault.seal(asdict(kept), _about(endpoint))


def opened(context: Context, row: Any) -> Kept:
    """The secrets of an endpoint, from its row."""
    found = context.vault.open(row.sealed, _about(row.name))
    return Kept(**{item.name: str(found[item.name]) for item in fields(Kept) if item.name in found})


def renewed(kept: Kept, auth_mode: AuthMode, kind: KeyKind) -> Kept:
    """With one new key; where tokens open the endpoint, a new signing key, so that all of them end."""
    if auth_mode != "key":
        # Running replicas know the front door by the key that they were started with.
        return replace(kept, signing=_key(), inner_key=kept.inner_key or kept.signing)
    return replace(kept, primary=_key()) if kind == "primary" else replace(kept, secondary=_key())


def shown(kept: Kept, endpoint: str, auth_mode: AuthMode, now: float) -> EndpointKeys:
    """The credentials that a person gets for the endpoint."""
    if auth_mode == "key":
        return EndpointKeys(auth_mode, kept.primary, kept.secondary)
    expires_at = int(now) + TOKEN_S
    return EndpointKeys(auth_mode, token=_token(endpoint, kept.signing, expires_at), expires_at=float(expires_at))


def _token(endpoint: str, signing: str, expires_at: int) -> str:
    """A token as the front door checks it (`scoring.door.table`)."""
    signed = hmac.new(signing.encode(), f"{endpoint}/{expires_at}".encode(), hashlib.sha256).hexdigest()
    return f"{_TOKEN_PREFIX}{expires_at}.{signed}"


def _key() -> str:
    return secrets.token_urlsafe(32)


def _about(endpoint: str) -> str:
    return f"the keys of the endpoint {endpoint}"
