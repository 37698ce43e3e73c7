"""Registries that images come from, and the secrets that hold their credentials. Pure, standard library only."""

from __future__ import annotations

import re


def registry_of(image: str) -> str:
    """The registry of an image: the part before the first slash if that is a host."""
    first, slash, _ = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return first
    return "docker.io"


def whole(image: str) -> str:
    """An image's name with its registry, which docker adds if it is left out."""
    if registry_of(image) != "docker.io" or image.startswith("docker.io/"):
        return image
    return f"docker.io/{image}" if "/" in image else f"docker.io/library/{image}"


def secret_name(registry: str) -> str:
    """The secret that holds a registry's credentials."""
    return "registry_" + re.sub(r"[^A-Za-z0-9]", "_", registry)
