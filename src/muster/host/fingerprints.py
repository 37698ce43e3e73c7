"""Certificates by their fingerprints. Standard library only."""

from __future__ import annotations

import base64
import hashlib
import re
import ssl


def fingerprint(certificate: str) -> str:
    """The SHA-256 of a certificate (PEM) in ssh's format, short enough to read aloud."""
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def is_fingerprint_of(text: str, certificate: str) -> bool:
    """Whether a fingerprint, in ssh's or in openssl's hexadecimal format, is that of a certificate."""
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).hexdigest()
    plain = re.sub(r"^(?:sha-?256)(?: fingerprint)?[:=]", "", text.strip(), flags=re.IGNORECASE)
    return plain.rstrip("=") == fingerprint(certificate).partition(":")[2] or plain.replace(":", "").lower() == digest
