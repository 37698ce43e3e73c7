"""ID tokens: forged, stale, borrowed ones are refused, each for its own reason."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from muster.errors import AccessDenied, UserError
from muster.server.people.identity import Identity, verify
from muster.server.people.sso import SsoConfig, read_sso

RSA, OTHER, EC = (
    rsa.generate_private_key(65537, 2048),
    rsa.generate_private_key(65537, 2048),
    ec.generate_private_key(ec.SECP256R1()),
)
ISSUER, CLIENT, NOW = "https://id.example.org", "muster", 1_000_000.0
CLAIMS: dict[str, Any] = {
    "iss": ISSUER, "aud": CLIENT, "sub": "42", "exp": NOW + 300, "iat": NOW, "email": "Ada@Example.org",
    "email_verified": True,
}  # fmt: skip


def text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def number(value: int) -> str:
    return text(value.to_bytes((value.bit_length() + 7) // 8))


def public(key: Any, kid: str) -> dict[str, Any]:
    numbers = key.public_key().public_numbers()
    if isinstance(key, rsa.RSAPrivateKey):
        return {"kty": "RSA", "kid": kid, "use": "sig", "n": number(numbers.n), "e": number(numbers.e)}
    return {"kty": "EC", "crv": "P-256", "kid": kid, "x": number(numbers.x), "y": number(numbers.y)}


KEYS = [public(RSA, "r"), public(EC, "e"), {**public(OTHER, "enc"), "use": "enc"}, {"kty": "oct", "k": "x"}, {}]


def made(claims: dict[str, Any], key: Any = RSA, alg: str = "RS256", kid: str | None = "r") -> str:
    head = {"alg": alg, **({"kid": kid} if kid else {})}
    data = f"{text(json.dumps(head).encode())}.{text(json.dumps(claims).encode())}"
    if alg == "RS256":
        signature = key.sign(data.encode(), padding.PKCS1v15(), hashes.SHA256())
    elif alg == "ES256":
        r, s = decode_dss_signature(key.sign(data.encode(), ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(32) + s.to_bytes(32)
    elif alg == "HS256":
        signature = hmac.new(key, data.encode(), hashlib.sha256).digest()
    else:
        signature = b""
    return f"{data}.{text(signature)}"


def check(token: str) -> Identity:
    return verify(token, KEYS, ISSUER, CLIENT, NOW)


@pytest.mark.parametrize("token", [made(CLAIMS), made(CLAIMS, kid=None), made(CLAIMS, EC, "ES256", "e")])
def test_a_genuine_token_says_who_it_is(token: str) -> None:
    assert check(token) == Identity(ISSUER, "42", "ada@example.org", NOW + 300)


def test_an_address_that_is_not_verified_does_not_count() -> None:
    for value in (False, "true", None, 1):
        assert check(made({**CLAIMS, "email_verified": value})).email == ""


SHARED = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (made(CLAIMS, OTHER), "not signed"),
        (made(CLAIMS, OTHER, kid="enc"), "not signed"),
        (made(CLAIMS, alg="none"), "not signed"),
        (made(CLAIMS, SHARED, "HS256"), "not signed"),
        (made(CLAIMS, RSA, kid="unknown"), "not signed"),
        (made(CLAIMS, RSA, kid="e"), "not signed"),
        (made(CLAIMS)[:-4] + "AAAA", "not signed"),
        (".".join([made(CLAIMS).split(".")[0], made({**CLAIMS, "sub": "1"}).split(".")[1], made(CLAIMS).split(".")[2]]),
         "not signed"),
        (made({**CLAIMS, "iss": "https://evil.example.org"}), "people here sign on"),
        (made({**CLAIMS, "aud": "another"}), "another program"),
        (made({**CLAIMS, "aud": ["muster", "another"]}), "another program"),
        (made({**CLAIMS, "aud": None}), "another program"),
        (made({**CLAIMS, "exp": NOW - 3600}), "expired"),
        (made({**CLAIMS, "iat": NOW + 3600}), "expired"),
        (made({**CLAIMS, "exp": "soon"}), "until when"),
        (made({**CLAIMS, "exp": 1e300}), "until when"),
        (made({**CLAIMS, "sub": ""}), "whose it is"),
        ("", "no ID token"), ("a.b", "no ID token"), ("....", "no ID token"), ("[[[.e.e", "no ID token"),
        ("x" * 100_000, "no ID token"), (text(b"[" * 9000) + ".e30.e", "no ID token"), ("e30.W10.AA", "no ID token"),
    ],
)  # fmt: skip
def test_any_other_is_refused(token: str, why: str) -> None:
    with pytest.raises(AccessDenied, match=why):
        check(token)


@pytest.mark.parametrize(
    "config",
    [[], {}, {"issuer": "https://x"}, {"issuer": "http://id.example.org", "client_id": "m"},
     {"issuer": "https://x", "client_id": "m", "role": "king"},
     {"issuer": "https://x", "client_id": "m", "secret": "s"}],
    ids=str,
)  # fmt: skip
def test_a_setting_that_is_wrong_is_refused(config: Any) -> None:
    with pytest.raises(UserError):
        read_sso(config)


def test_the_setting_is_read() -> None:
    assert read_sso({"issuer": "https://x/", "client_id": "m", "role": "reader"}) == SsoConfig(
        "https://x", "m", "reader"
    )
    assert read_sso(None) is None
