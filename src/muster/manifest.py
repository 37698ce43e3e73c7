"""What a code snapshot is: its files, and the digest that names it. Standard library only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

Manifest = Mapping[str, Sequence[str | int]]
"""Path below the folder, with `/`, to [sha256, size in bytes, mode]; mode is 0o644 or 0o755."""


def digest_of(files: Manifest) -> str:
    """The name of a snapshot: the same files give the same digest, whoever made them."""
    plain = {path: list(entry) for path, entry in files.items()}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def is_safe(path: str) -> bool:
    """Whether a relative path stays below the folder that it is joined to, and is written the one plain way."""
    return "\0" not in path and not {"", ".", ".."} & set(path.split("/"))
