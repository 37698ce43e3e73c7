"""How much room built environments may take on this host. Standard library only."""

from __future__ import annotations

import os

from muster.defaults import ENVIRONMENTS_LIMIT_BYTES

VARIABLE = "MUSTER_ENVIRONMENTS_LIMIT_BYTES"


def limit_bytes() -> int:
    """The limit, as the user set it or by default; what is no number counts as not set."""
    given = os.environ.get(VARIABLE, "")
    return int(given) if given.isdigit() else ENVIRONMENTS_LIMIT_BYTES
