"""The workspace store as `workspace.json` describes it: a folder, or an address that fsspec knows."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Mapping
from pathlib import Path

from muster import errors
from muster.defaults import STORE_ANSWER_S
from muster.host.extras import install_command
from muster.storage.addresses import refuse_embedded_secret
from muster.storage.connectors.datastore import without_secrets
from muster.store.backend import Store
from muster.store.keyring import KeyRing
from muster.wire.codec import Json


def open_workspace_store(url: str, config: Mapping[str, Json], ring: KeyRing | None = None) -> Store:
    """Open `store`, with `store_options` for its filesystem."""
    if "://" in url:
        refuse_embedded_secret(url)
    try:
        return Store(url, _options(config), ring)
    except ImportError as error:
        raise errors.MissingExtra(
            f"the workspace store {url} needs a package that is not installed: {error.name or error}",
            f"For Azure storage: {install_command('azure')}",
        ) from error
    except ValueError as error:
        raise errors.UserError(f"the workspace store {url} cannot be opened: {error}", "See docs/storage.md.") from None


def check_answers(store: Store, url: str, config: Mapping[str, Json], answer_s: float = STORE_ANSWER_S) -> None:
    """Refuse to serve where the store fails or is silent, and say so soon: libraries retry for minutes."""
    if store.local_root is not None:
        return
    found: queue.Queue[Exception | None] = queue.Queue()
    threading.Thread(target=_ask, args=(store, found), daemon=True).start()
    try:
        error = found.get(timeout=answer_s)
    except queue.Empty:
        raise errors.UserError(
            f"the workspace store {url} gave no answer within {answer_s:g} s",
            "Is the address right, does this machine reach it, and is its certificate known (SSL_CERT_FILE)?",
        ) from None
    if error is None:
        return
    said = without_secrets((str(error).splitlines() or [""])[0], _options(config))
    raise errors.UserError(
        f"the workspace store {url} cannot be used: {type(error).__name__}: {said[:300]}",
        "Correct `store` and `store_options` in workspace.json: see docs/storage.md.",
    )


def _ask(store: Store, found: queue.Queue[Exception | None]) -> None:
    try:
        store.exists("encryption/check")
        found.put(None)
    except Exception as error:
        found.put(error)


def _options(config: Mapping[str, Json]) -> dict[str, Json]:
    """`store_options`, for the store's filesystem."""
    given = config.get("store_options") or {}
    if not isinstance(given, Mapping):
        raise errors.UserError("`store_options` in workspace.json must be a mapping", "See docs/storage.md.")
    return {name: _value(name, value) for name, value in given.items()}


def _value(name: str, given: Json) -> Json:
    """An option, or the value of the variable or file that it names, so that no secret lies in workspace.json."""
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
