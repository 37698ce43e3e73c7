"""What `muster up` prints for people who want to connect."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from muster.host.fingerprints import fingerprint
from muster.host.http import is_loopback
from muster.host.network import reachable


def invitation(url: str, certificate: Path | None) -> str:
    """The line to paste, and how to get a token."""
    known_by = f" --fingerprint {fingerprint(certificate.read_text())}" if certificate else ""
    who = "Others connect with this line"
    if is_loopback(urlsplit(url).hostname or ""):
        who = "Others on this machine connect with this line (`--host 0.0.0.0 --tls` lets other machines in)"
    return (
        f"{who}:\n\n  muster login {reachable(url)}{known_by}\n\n"
        "It asks for a token. `muster user invite NAME` prints a link that needs none.\n"
        "`muster up --print-token` prints your own token: it may do everything, so keep\n"
        "it to yourself.\n"
        "Ctrl-C ends the server; active runs go on."
    )
