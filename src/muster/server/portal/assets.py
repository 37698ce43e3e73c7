"""The portal's files: read once, compressed once, and cached by browsers until they change."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_KINDS = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
}
PAGE = "index.html"
_BASE, _MODULES = b"{{base}}", b"{{modules}}"
BASE_PATH = "/portal/files"


@dataclass(frozen=True)
class Asset:
    """One file, as it is and compressed."""

    kind: str
    plain: bytes
    packed: bytes


@dataclass(frozen=True)
class Assets:
    """All files of the portal; each address contains their digest, so that no cached file is outdated."""

    digest: str
    files: dict[str, Asset]
    page: Asset
    """The single page; its content depends on the address."""


@cache
def portal_assets() -> Assets:
    """The portal's files from the package."""
    found = {path: item.read_bytes() for path, item in _walk(files("muster") / "portal", "")}
    digest = hashlib.sha256(b"".join(path.encode() + b"\0" + data for path, data in sorted(found.items())))
    name = digest.hexdigest()[:12]
    # Preload all modules: otherwise each would be requested only after the one that imports it.
    modules = [f'<link rel="modulepreload" href="{{{{base}}}}/{path}">' for path in found if path.endswith(".js")]
    page = found.pop(PAGE).replace(_MODULES, "\n".join(modules).encode())
    page = page.replace(_BASE, f"{BASE_PATH}/{name}".encode())
    return Assets(name, {path: _asset(path, data) for path, data in found.items()}, _asset(PAGE, page))


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            yield from _walk(item, f"{prefix}{item.name}/")
        elif item.name.rpartition(".")[2] in _KINDS:
            yield f"{prefix}{item.name}", item


def _asset(path: str, data: bytes) -> Asset:
    return Asset(_KINDS[path.rpartition(".")[2]], data, gzip.compress(data, 9, mtime=0))
