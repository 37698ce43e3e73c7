"""How Muster was installed, for hints on how to install extras."""

from __future__ import annotations

import json
from importlib import metadata
from shlex import quote
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "muster-ml"


def install_command(extra: str) -> str:
    """The command that installs an extra: from the clone, the wheel, or the package index."""
    return f"pip install {installed_from(_direct_url(), extra)}"


def installed_from(direct_url: str | None, extra: str) -> str:
    """The requirement for pip, from the direct_url.json that pip leaves; None: it came from an index. Pure."""
    try:
        record = json.loads(direct_url or "{}")
        parts = urlsplit(str(record.get("url", "")))
    except (ValueError, AttributeError):
        return quote(f"{DISTRIBUTION}[{extra}]")
    if parts.scheme != "file":
        return quote(f"{DISTRIBUTION}[{extra}]")
    path = quote(f"{unquote(parts.path)}[{extra}]")
    return f"-e {path}" if record.get("dir_info", {}).get("editable") else path


def _direct_url() -> str | None:
    try:
        return metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except (metadata.PackageNotFoundError, OSError):
        return None
