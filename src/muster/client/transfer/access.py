"""How this machine reaches storage: directly where the server can give access, otherwise through the server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TypeVar

from muster.client.calls import API
from muster.client.storage import Storage
from muster.client.transfer.places import Place
from muster.errors import AccessDenied, DiskFull, UserError
from muster.host.hashing import measure_pieces
from muster.storage.connectors.base import AccessRefused, Source, TransferError, read_through
from muster.storage.connectors.credentials import FreshTokens, Keys
from muster.storage.connectors.http import Http
from muster.storage.connectors.opening import Writable, open_access
from muster.storage.connectors.web import MusterStore, Web
from muster.wire.data.access import READ, Access, FileEntry, NewAccess, OpenedAccess, Scope, Use, folder_id

BATCH = 1000
"""The most files that are named to the server at once."""
T = TypeVar("T")


class OpenFolder:
    """An open folder of a datastore; before files are used they are announced."""

    def __init__(self, storage: Storage, place: Place, use: Use) -> None:
        self._storage = storage
        self._address = str(place)
        self._use: Use = use
        self._direct = True
        opened = self._ask(())
        if opened.access.kind == "file" and not _is_ours(opened, place.path, opened.access.scope):
            self._direct = False
            opened = self._ask(())
        try:
            self.connector = self._open(opened.access)
        except TransferError:
            # A package that this machine lacks: the server has it.
            self._direct = False
            self.connector = self._open(self._ask(()).access)

    def announce(self, names: Sequence[str]) -> None:
        """Name the files to be used next: the server refuses those that must not change, and signs for single files."""
        if isinstance(self.connector, Web) and self._per_file:
            self.connector.prefetch(list(names))
        elif self._use != "read":
            for batch in batches(names):
                self._ask(batch)

    def _open(self, access: Access) -> Writable:
        self.is_direct = access.kind != "muster"
        self._per_file = access.per_file
        found = open_access(access, self._storage.calls.address, self._fresh)
        assert not isinstance(found, Web) or hasattr(found, "put")
        return found  # type: ignore[return-value]

    def _fresh(self, names: list[str]) -> FreshTokens:
        tokens: dict[str, str] = {}
        token = None
        for batch in batches(names):
            opened = self._ask(batch)
            token = opened.access.token or token
            tokens.update(opened.tokens)
        return FreshTokens(token, tokens)

    def _ask(self, names: Sequence[str]) -> OpenedAccess:
        return self._storage.open_access(self._use, NewAccess(self._address, tuple(names), self._direct))


def asset_source(storage: Storage, name: str, version: str) -> Source:
    """The files of a data asset, read through the server wherever they lie."""
    url = f"{API}/assets/{name}/versions/{version}/files"
    return MusterStore(url, Keys(), f"azureml:{name}:{version}", Http(storage.calls.address))


def elsewhere(place: Place) -> Writable | Web:
    """The storage at an address that this machine opens itself, with its own credentials."""
    location = place.location
    assert location is not None
    if location.kind == "azure-blob":
        return open_access(Access("azure-blob", str(location), label=place.text))
    # A web server's folder, recognised by its slash, is listed through fsspec.
    if location.kind == "http" and not place.is_folder:
        return open_access(Access("http", location.url, folder=False, label=place.text))
    return open_access(Access("fsspec", location.url, label=place.text))


def batches(items: Iterable[T], count: int = BATCH) -> Iterator[list[T]]:
    """The items, `count` at a time."""
    left = iter(items)
    while batch := list(islice(left, count)):
        yield batch


@contextmanager
def explained() -> Iterator[None]:
    """Turn the engine's exceptions into errors for users."""
    try:
        yield
    except AccessRefused as error:
        raise AccessDenied(error.message, error.next) from error
    except TransferError as error:
        again = "" if error.final else "Type the command again: it goes on where it stopped."
        if error.code == "disk_full":
            raise DiskFull(error.message, error.next or f"Free some space there. {again}") from error
        raise UserError(error.message, error.next or again, "storage") from error
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        raise UserError(f"{named}{error.strerror or error}.") from error
    except Exception as error:
        # Cloud libraries have their own errors, such as NoCredentialsError.
        if type(error).__module__.partition(".")[0] in ("muster", "builtins"):
            raise
        hint = "Credentials for an address come from this machine's environment; a datastore holds its own."
        raise UserError(f"{type(error).__name__}: {error}", hint, "storage") from error


def _is_ours(opened: OpenedAccess, path: str, scope: Scope) -> bool:
    """Whether this process sees the same folder as the server, and may use it as the server would."""
    root = Path(opened.access.url)
    for _ in PurePosixPath(path).parts:
        root = root.parent
    try:
        found = root.stat()
    except OSError:
        return False
    is_same = folder_id(found.st_dev, found.st_ino) == opened.folder_id
    if scope == READ:
        return is_same and os.access(root, os.R_OK | os.X_OK)
    # Files written here must belong to the same user as those that the server writes.
    return is_same and found.st_uid == os.geteuid()


def hash_here(source: Source, entry: FileEntry) -> str:
    """The hash of a file's content: the one that the storage knows, otherwise computed from its bytes."""
    if entry.sha256:
        return entry.sha256
    known = getattr(source, "known", None)
    found = known(entry.path) if known is not None else None
    if found is not None and found[1]:
        return str(found[1])
    return _read_hash(source, entry)


def _read_hash(source: Source, entry: FileEntry) -> str:
    return measure_pieces(read_through(source, entry)).sha256
