"""Verifies ID tokens of a sign-on service (OpenID Connect): genuine, for this workspace, and whose."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from muster import errors
from muster.wire.codec import Json

_MOST = 16_384
_LEEWAY_S = 60.0
_HINT = "Log in again: `muster login URL --sso`."


@dataclass(frozen=True)
class Identity:
    """The person that a service vouches for."""

    issuer: str
    subject: str
    email: str
    """Verified by the service; empty where it is not."""
    expires_at: float

    @property
    def key(self) -> str:
        return f"{self.issuer}#{self.subject}"


def verify(token: str, keys: Sequence[Mapping[str, Json]], issuer: str, client_id: str, now: float) -> Identity:
    """Check signature, issuer, audience and time; raises AccessDenied that says which does not hold."""
    head, claims, signed, signature = _parts(token)
    algorithm, key_id = head.get("alg"), head.get("kid")
    fitting = [key for key in keys if key_id is None or key.get("kid") == key_id]
    if not any(_is_signed(str(algorithm), key, signed, signature) for key in fitting):
        raise errors.AccessDenied("the ID token is not signed by the sign-on service", _HINT)
    if claims.get("iss") != issuer:
        raise errors.AccessDenied(f"the ID token is of {claims.get('iss')!r}, people here sign on at {issuer}", _HINT)
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
    if client_id not in audiences or (len(audiences) > 1 and claims.get("azp") != client_id):
        raise errors.AccessDenied("the ID token was made for another program", _HINT)
    expires_at, issued_at, subject = claims.get("exp"), claims.get("iat"), claims.get("sub")
    if not _is_time(expires_at) or not _is_time(issued_at) or not isinstance(subject, str) or not subject:
        raise errors.AccessDenied("the ID token does not say whose it is, or until when", _HINT)
    if expires_at < now - _LEEWAY_S or issued_at > now + _LEEWAY_S:  # type: ignore[operator]
        raise errors.AccessDenied("the ID token has expired, or is of the future", _HINT)
    email = claims.get("email") if claims.get("email_verified") is True else ""
    return Identity(issuer, subject, str(email or "").lower(), float(expires_at))  # type: ignore[arg-type]


def key_id_of(token: str) -> str:
    """The id of the service's key that the token names."""
    return str(_parts(token)[0].get("kid") or "")


def _parts(token: str) -> tuple[Mapping[str, Json], Mapping[str, Json], bytes, bytes]:
    try:
        if len(token) > _MOST:
            raise ValueError
        first, second, third = token.split(".")
        head, claims = json.loads(_decoded(first)), json.loads(_decoded(second))
        if not isinstance(head, dict) or not isinstance(claims, dict):
            raise ValueError
        return head, claims, f"{first}.{second}".encode("ascii"), _decoded(third)
    except (ValueError, binascii.Error, RecursionError):
        raise errors.AccessDenied("what was sent is no ID token", _HINT) from None


def _is_signed(algorithm: str, key: Mapping[str, Json], data: bytes, signature: bytes) -> bool:
    """Whether a key of the algorithm's kind signed it; `none` and shared secrets do not count as signatures."""
    if key.get("use") not in (None, "sig"):
        return False
    try:
        if algorithm in ("RS256", "PS256") and key.get("kty") == "RSA":
            public = rsa.RSAPublicNumbers(_number(key["e"]), _number(key["n"])).public_key()
            pss = padding.PSS(padding.MGF1(hashes.SHA256()), hashes.SHA256.digest_size)
            public.verify(signature, data, pss if algorithm == "PS256" else padding.PKCS1v15(), hashes.SHA256())
            return True
        if algorithm == "ES256" and key.get("kty") == "EC" and key.get("crv") == "P-256" and len(signature) == 64:
            numbers = ec.EllipticCurvePublicNumbers(_number(key["x"]), _number(key["y"]), ec.SECP256R1())
            plain = encode_dss_signature(int.from_bytes(signature[:32]), int.from_bytes(signature[32:]))
            numbers.public_key().verify(plain, data, ec.ECDSA(hashes.SHA256()))
            return True
    except (InvalidSignature, ValueError, KeyError, TypeError, binascii.Error):
        return False
    return False


def _number(text: Json) -> int:
    return int.from_bytes(_decoded(str(text)))


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _is_time(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12
