"""What went wrong when an image was pulled or built, read from what the engine printed. Pure, standard library only."""

from __future__ import annotations

import re
from collections.abc import Sequence

from muster.environments.failures import Failure, killed

_LINES = 25
_PATTERNS = (
    (
        re.compile(r"no space left on device|disk quota exceeded", re.I),
        "disk_full",
        "the disk is full",
        "Remove images that nobody uses (`podman image prune`), or give the engine a larger disk.",
    ),
    (
        re.compile(r"unauthorized|authentication required|access to the resource is denied|denied:|\b40[13]\b", re.I),
        "environment",
        "the registry refused the credentials, or has none for this image",
        "Set them with `muster secret set {secret}`, as USER:PASSWORD; check that the image's name is right.",
    ),
    (
        re.compile(r"manifest unknown|not found: manifest|name unknown|repository does not exist|\b404\b", re.I),
        "environment",
        "the registry has no such image",
        "Correct its name or tag.",
    ),
    (
        re.compile(
            r"no such host|connection refused|network is unreachable|i/o timeout|TLS handshake|server misbehaving"
            r"|temporary failure in name resolution|proxyconnect|server gave HTTP response to HTTPS|no route to host",
            re.I,
        ),
        "environment",
        "the registry cannot be reached",
        "Check the network and proxy of the node, and the registry's name.",
    ),
)


def classify(what: str, code: int, printed: Sequence[str], secret: str, *, pulled: bool) -> Failure:
    """The failure behind an engine's exit; `what` names the image and what was done with it."""
    lines = tuple(line for line in printed if line.strip())[-_LINES:]
    if code < 0:
        return killed("the container engine", -code, lines)
    text = "\n".join(lines)
    for pattern, verdict, message, hint in _PATTERNS:
        # A build prints whatever its commands print; only a full disk means the same there.
        if (pulled or verdict == "disk_full") and pattern.search(text):
            return Failure(verdict, f"{what}: {message}", hint.format(secret=secret), lines)
    hint = "The lines say why." if pulled else "The lines say which step failed; correct the Dockerfile."
    return Failure("environment", f"{what}: the engine ended with code {code}", hint, lines)
