"""How much space built environments and images may use on this host. Standard library only."""

from __future__ import annotations

import os

from muster.defaults import ENVIRONMENTS_LIMIT_BYTES, IMAGES_LIMIT_BYTES

VARIABLE = "MUSTER_ENVIRONMENTS_LIMIT_BYTES"
IMAGES_VARIABLE = "MUSTER_IMAGES_LIMIT_BYTES"


def limit_bytes() -> int:
    """The limit of environments, set by the user or the default; anything but a number counts as not set."""
    return _given(VARIABLE, ENVIRONMENTS_LIMIT_BYTES)


def images_limit_bytes() -> int:
    """The limit of the images that Muster makes."""
    return _given(IMAGES_VARIABLE, IMAGES_LIMIT_BYTES)


def _given(name: str, default: int) -> int:
    given = os.environ.get(name, "")
    return int(given) if given.isdigit() else default
