"""Certificates of endpoints: a given pair, or one signed by an authority of the endpoint's own."""

from __future__ import annotations

import socket
from dataclasses import replace

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from muster import errors
from muster.server.endpoints.keys import Kept
from muster.server.http.tls import made_for
from muster.wire.serving.endpoints import NewEndpoint


def with_tls(kept: Kept, new: NewEndpoint) -> Kept:
    """The secrets of a new endpoint, with those for TLS if it is asked for."""
    if new.certificate and new.private_key:
        _check_pair(new.certificate, new.private_key)
        return replace(
            kept, authority=new.certificate, certificate=new.certificate, private_key=new.private_key
        )  # fmt: skip
    if not new.tls:
        return kept
    authority, key = made_for([])
    return replace(kept, authority=authority.decode(), authority_key=key.decode())


def certified(kept: Kept, host: str) -> Kept | None:
    """With a certificate for the front door's present address; None if it has that, or needs none."""
    if not kept.authority_key or kept.certified_host == host:
        return None
    names = dict.fromkeys((socket.gethostname(), host))
    certificate, key = made_for(names, signed_by=(kept.authority.encode(), kept.authority_key.encode()))
    return replace(kept, certificate=certificate.decode(), private_key=key.decode(), certified_host=host)


def _check_pair(certificate: str, private_key: str) -> None:
    """Refuse a pair with which no front door could start."""
    try:
        public = x509.load_pem_x509_certificates(certificate.encode())[0].public_key()
        private = serialization.load_pem_private_key(private_key.encode(), None)
    except (ValueError, TypeError) as error:
        raise errors.JobError(
            f"the certificate or its key cannot be used: {str(error).partition('. ')[0]}",
            "Give PEM files, the key without a password.",
        ) from error
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    if public.public_bytes(*form) != private.public_key().public_bytes(*form):
        raise errors.JobError("the key is not that of the certificate", "Give the two files that belong together.")
