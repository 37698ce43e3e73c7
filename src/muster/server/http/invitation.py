"""What `muster up` prints for those who want to connect."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from urllib.parse import urlsplit

from muster.host.fingerprints import fingerprint
from muster.host.network import address_towards, in_url


def invitation(url: str, certificate: Path | None) -> str:
    """One line to paste, and where its token comes from."""
    known_by = f" --fingerprint {fingerprint(certificate.read_text())}" if certificate else ""
    return (
        f"Others connect with this line:\n\n  muster login {reachable(url)}{known_by}\n\n"
        "It asks for a token: `muster up --print-token` prints yours. Ctrl-C ends the server; active runs go on."
    )


def reachable(url: str) -> str:
    """The address by which other machines reach a server; one that listens everywhere has this machine's."""
    parts = urlsplit(url)
    try:
        everywhere = ipaddress.ip_address(parts.hostname or "").is_unspecified
    except ValueError:
        everywhere = False
    return f"{parts.scheme}://{in_url(address_towards(()))}:{parts.port}" if everywhere else url
