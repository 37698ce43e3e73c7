"""The workspace store as `workspace.json` describes it: a folder, or an address that fsspec knows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster import errors
from muster.data.addresses import refuse_embedded_secret
from muster.store.backend import Store
from muster.store.keyring import KeyRing


def open_workspace_store(url: str, config: Mapping[str, Any], ring: KeyRing | None = None) -> Store:
    """Open `store`, with `store_options` for its filesystem."""
    if "://" in url:
        refuse_embedded_secret(url)
    options = {name: _value(name, given) for name, given in (config.get("store_options") or {}).items()}
    try:
        return Store(url, options, ring)
    except ImportError as error:
        raise errors.MissingExtra(
            f"the workspace store {url} needs a package that is not installed: {error.name or error}",
            "For Azure storage: pip install 'muster[azure]'.",
        ) from error
    except ValueError as error:
        raise errors.UserError(f"the workspace store {url} cannot be opened: {error}", "See docs/storage.md.") from None


def _value(name: str, given: Any) -> Any:
    """An option, or what a variable or file holds that it names, so that no secret lies in workspace.json."""
    if not isinstance(given, Mapping):
        return given
    if "env" in given:
        value = os.environ.get(str(given["env"]))
        if value:
            return value
        raise errors.UserError(f"store_options.{name}: the variable {given['env']} is not set", "Set it there.")
    if "file" in given:
        try:
            return Path(str(given["file"])).expanduser().read_text().strip()
        except OSError as error:
            raise errors.UserError(f"store_options.{name}: {given['file']}: {error.strerror}") from error
    raise errors.UserError(f"store_options.{name} is a mapping without env or file", 'Write {"env": "NAME"}.')
