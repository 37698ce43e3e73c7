"""Security of a Ray cluster that Muster starts: a token, and certificates of its own authority."""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Sequence
from pathlib import Path

from muster.engines.ray.machines.starting import CA, CERTIFICATE, KEY, TOKEN
from muster.host.files import PRIVATE, write_file

_DAYS = 3650


def make(folder: Path, addresses: Sequence[str]) -> None:
    """Create what is missing, for Ray on these addresses and for its clients."""
    make_token(folder)
    mark, wanted = folder / "addresses", "\n".join(sorted(addresses))
    if not mark.exists() or mark.read_text() != wanted:
        _make_certificates(folder, addresses)
        mark.write_text(wanted)


def make_token(folder: Path) -> Path:
    """The file with a cluster's token, which stays the same."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / TOKEN).exists():
        write_file(folder / TOKEN, secrets.token_hex(32), mode=PRIVATE)
    return folder / TOKEN


def _make_certificates(folder: Path, addresses: Sequence[str]) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import NameOID

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)

    def builder(subject: x509.Name, issuer: x509.Name, public: rsa.RSAPublicKey) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
        made = made.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
        return made.not_valid_after(now + datetime.timedelta(days=_DAYS))

    authority_key = rsa.generate_private_key(65537, 2048)
    authority = named("muster-ray-authority")
    signed = (
        builder(authority, authority, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    key = rsa.generate_private_key(65537, 2048)
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    for address in addresses:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(address)))
        except ValueError:
            names.append(x509.DNSName(address))
    node = (
        builder(named("muster-ray"), authority, key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    # The authority's key is not kept: a cluster with other hosts gets a new authority.
    write_file(folder / CA, signed.public_bytes(pem), mode=PRIVATE)
    write_file(folder / CERTIFICATE, node.public_bytes(pem), mode=PRIVATE)
    write_file(folder / KEY, private, mode=PRIVATE)
