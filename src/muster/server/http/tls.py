"""A certificate of the workspace's own, for serving beyond this machine."""

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


def made_for(hosts: Iterable[str]) -> tuple[bytes, bytes]:
    """A certificate that nobody but itself has signed, and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "muster")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName(_names(hosts)), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private


def _names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    for address in ("127.0.0.1", "::1", *hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(address)))
        except ValueError:
            names.append(x509.DNSName(address))
    return names
