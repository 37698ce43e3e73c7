"""The workspace's own certificate, for serving beyond this machine."""

from __future__ import annotations

import datetime
import ipaddress
import socket
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from muster.host.files import PRIVATE, write_file

_YEARS = 5


def self_signed(folder: Path, host: str) -> tuple[Path, Path]:
    """Certificate and key files, made on first use; clients pin the certificate."""
    certificate_path, key_path = folder / "server.crt", folder / "server.key"
    if certificate_path.exists() and key_path.exists():
        return certificate_path, key_path
    folder.mkdir(parents=True, exist_ok=True)
    certificate, private = made_for([socket.gethostname(), host])
    write_file(key_path, private, mode=PRIVATE, durable=True)
    write_file(certificate_path, certificate, durable=True)
    return certificate_path, key_path


def made_for(hosts: Iterable[str], signed_by: tuple[bytes, bytes] | None = None) -> tuple[bytes, bytes]:
    """A certificate and its key, as PEM; signed by itself, or by an authority that was made so."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "muster")])
    signer = key
    if signed_by is not None:
        issuer = x509.load_pem_x509_certificate(signed_by[0]).subject
        found = serialization.load_pem_private_key(signed_by[1], None)
        assert isinstance(found, ec.EllipticCurvePrivateKey)
        signer, name = found, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "muster endpoint")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
        .add_extension(_constraints(is_authority=signed_by is None), critical=True)
        .add_extension(x509.SubjectAlternativeName(_names(hosts)), critical=False)
        .sign(signer, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private


def _constraints(is_authority: bool) -> x509.BasicConstraints:
    return x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None)


def _names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    for address in ("127.0.0.1", "::1", *hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(address)))
        except ValueError:
            names.append(x509.DNSName(address))
    return names
