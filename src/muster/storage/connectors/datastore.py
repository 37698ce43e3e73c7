"""A registered datastore as the server itself reads and writes it: a connector, and errors that name the datastore."""

from __future__ import annotations

import errno
import importlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from muster import errors
from muster.defaults import GRANT_S
from muster.host.egress import Fence, fenced, fenced_pieces
from muster.host.extras import install_command
from muster.host.files import UNFINISHED, is_below, safe_path
from muster.host.http import Address, UntrustedCertificate
from muster.storage.addresses import joined
from muster.storage.connectors.azure import BEARER, Blob, Share
from muster.storage.connectors.base import Connector, TransferError
from muster.storage.connectors.credentials import FreshTokens, Keys
from muster.storage.connectors.files import Folder
from muster.storage.connectors.filesystems import Filesystem
from muster.storage.connectors.http import Http
from muster.storage.granting import signer_of
from muster.storage.kinds import (
    BlobContainer,
    Credential,
    FileShare,
    FsspecAddress,
    LocalFolder,
    SharedFolder,
    StoreSpec,
    describe,
    endpoint_of,
    extra_for,
    root_of,
)
from muster.store.backend import Store
from muster.store.keyring import KeyRing
from muster.store.pieces import pieces_of
from muster.wire.codec import Json, to_json
from muster.wire.data.access import WRITE, FileEntry

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

_SCOPE = "https://storage.azure.com/.default"
_RENEW_BEFORE_S = 300.0
_TIMEOUT_S = 10.0


class Datastore:
    """Files of one datastore by their paths."""

    def __init__(self, spec: StoreSpec, connector: Connector, below: str = "") -> None:
        self._spec = spec
        self._connector = connector
        self._below = below
        self.left_out: list[str] = []
        """Links found in listings that lead out of the allowed folder."""

    def within(self, path: str) -> Datastore:
        """The same datastore, limited to a path and what lies below it, with links resolved."""
        return Datastore(self._spec, self._connector, path)

    def entries(self, path: str) -> Iterator[FileEntry]:
        """Every file below a folder, with its path relative to that."""
        with _explained(self._spec):
            inner = self._inside(path) if path else ""
            for entry in self._connector.listing(inner):
                if self._leads_out(joined(inner, entry.path)):
                    self.left_out.append(entry.path)
                # A file that is still being written does not count yet.
                elif UNFINISHED not in entry.path.rpartition("/")[2]:
                    yield entry

    def _leads_out(self, inner: str) -> bool:
        """Whether a listed file is a link out of the allowed folder; linked folders are not listed at all."""
        root = self._root
        if root is None or not os.path.islink(f"{root}/{inner}"):  # noqa: PTH114
            return False
        return not is_below(root / inner, root / self._below)

    @property
    def _root(self) -> Path | None:
        """The folder, if it is on this machine."""
        return self._connector.root if isinstance(self._connector, Folder | StoreFolder | Filesystem) else None

    def entry(self, path: str) -> FileEntry | None:
        """One file, or None where there is none of that name."""
        with _explained(self._spec):
            return self._connector.stat(self._inside(path)) if path else None

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        with _explained(self._spec):
            yield from self._connector.pieces(self._inside(path), offset, length)

    def write(self, path: str, pieces: Iterable[bytes], sha256: str | None = None, fresh: bool = False) -> int:
        """Write all of it or nothing; with `fresh`, only if the name is free. Returns the size."""
        with _explained(self._spec):
            try:
                return self._connector.write(self._inside(path), pieces, sha256, fresh)
            except FileExistsError:
                raise errors.Conflict(
                    f"{path} exists already in the datastore {self._spec.name}", "Choose another name."
                ) from None

    def remove(self, path: str) -> None:
        """Remove one file, if it is there; a folder is refused."""
        with _explained(self._spec):
            inner = self._inside(path)
            if self._connector.stat(inner) is not None:
                self._connector.remove(inner)
            elif next(iter(self._connector.listing(inner)), None) is not None:
                raise errors.Conflict(
                    f"{path} is a folder of the datastore {self._spec.name}", "Name the files to be removed one by one."
                )

    def _inside(self, path: str) -> str:
        """The path, if neither its parts nor its links lead out of the datastore."""
        inner = safe_path(path)
        root = self._root
        if root is None:
            return inner
        if not is_below(root / inner, root):
            raise errors.AccessDenied(f"{inner} is a link that leaves the datastore {self._spec.name}")
        if self._below and not is_below(root / inner, root / self._below):
            raise errors.AccessDenied(f"{inner} is a link that leaves {self._below}, which is all that is granted")
        return inner


def open_datastore(spec: StoreSpec, ring: KeyRing | None = None, fence: Fence | None = None) -> Datastore:
    """Open a registered datastore; with a fence, it connects only to addresses that the fence allows."""
    options = spec.options
    with _explained(spec), fenced(fence):
        if isinstance(options, BlobContainer | FileShare):
            return Datastore(spec, _behind(fence, _azure(options, spec.credential)))
        if isinstance(options, FsspecAddress):
            given = {**options.options, **spec.credential.secret_options}
            return Datastore(spec, _behind(fence, Filesystem.at(options.url, given)))
    assert isinstance(options, LocalFolder | SharedFolder)
    if not Path(options.path).is_dir():
        text = f"the datastore {spec.name}: there is no folder {options.path} here"
        raise errors.NotFound(text, "Make it, or mount it.")
    if isinstance(options, SharedFolder) or not options.encrypted:
        return Datastore(spec, Folder(options.path))
    if ring is None:
        hint = "Name a key under `encryption` in workspace.json."
        raise errors.Conflict(f"the datastore {spec.name} is to be encrypted, and the workspace has no key", hint)
    return Datastore(spec, StoreFolder(Store(options.path, ring=ring)))


def _behind(fence: Fence | None, connector: Connector) -> Connector:
    return connector if fence is None else _Fenced(fence, connector)


class _Fenced:
    """A storage on another machine, whose address is checked on each connection."""

    def __init__(self, fence: Fence, connector: Connector) -> None:
        self._fence = fence
        self._connector = connector
        self.label = connector.label

    def listing(self, folder: str = "") -> Iterator[FileEntry]:
        with fenced(self._fence):
            found = iter(self._connector.listing(folder))
        return fenced_pieces(self._fence, found)

    def stat(self, path: str) -> FileEntry | None:
        with fenced(self._fence):
            return self._connector.stat(path)

    def read(self, entry: FileEntry, offset: int, view: memoryview) -> None:
        with fenced(self._fence):
            self._connector.read(entry, offset, view)

    def pieces(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        return fenced_pieces(self._fence, self._connector.pieces(path, offset, length))

    def write(self, path: str, pieces: Iterable[bytes], sha256: str | None = None, fresh: bool = False) -> int:
        with fenced(self._fence):
            return self._connector.write(path, pieces, sha256, fresh)

    def remove(self, path: str) -> None:
        with fenced(self._fence):
            self._connector.remove(path)


class StoreFolder:
    """A folder of the workspace store, or one that is encrypted in the same way."""

    def __init__(self, store: Store, below: str = "") -> None:
        self._store = store
        self._below = below
        self.label = below
        local, (filesystem, root) = store.local_root, store.filesystem
        self.root = local / below if local is not None else None
        found = Folder(str(self.root)) if self.root is not None else Filesystem(filesystem, f"{root}/{below}")
        self._stored: Folder | Filesystem = found

    def listing(self, folder: str = "") -> Iterator[FileEntry]:
        if self.root is not None and not self.root.is_dir():
            return
        for entry in self._stored.listing(folder):
            yield self._plain(entry, joined(folder, entry.path))

    def stat(self, path: str) -> FileEntry | None:
        found = self._stored.stat(path)
        return self._plain(found, path) if found is not None else None

    def _plain(self, entry: FileEntry, path: str) -> FileEntry:
        """The entry with the size before encryption."""
        return replace(entry, size=self._store.size(self._name(path))) if self._store.encrypted else entry

    def read(self, entry: FileEntry, offset: int, view: memoryview) -> None:
        with self._store.open(self._name(entry.path)) as file:
            file.seek(offset)
            view[:] = file.read(len(view))

    def pieces(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        with self._store.open(self._name(path)) as file:
            file.seek(offset)
            yield from pieces_of(file, length)

    def write(self, path: str, pieces: Iterable[bytes], sha256: str | None = None, fresh: bool = False) -> int:
        if fresh and self._store.exists(self._name(path)):
            raise FileExistsError(path)
        return self._store.put(self._name(path), pieces, sha256)

    def remove(self, path: str) -> None:
        self._store.remove_file(self._name(path))

    def _name(self, path: str) -> str:
        return joined(self._below, path)


def _azure(options: BlobContainer | FileShare, credential: Credential) -> Blob | Share:
    url = f"{endpoint_of(options)}/{root_of(options)}/{quote(options.path)}".rstrip("/")
    keys = _keys(options, credential)
    # A client waits for the server's answer, so the server gives up on hanging storage sooner than a node.
    http = Http(Address(url), _TIMEOUT_S, tries=4)
    return (Share if isinstance(options, FileShare) else Blob)(url, keys, http=http)


def _keys(options: BlobContainer | FileShare, credential: Credential) -> Keys:
    if credential.account_key:

        def sign() -> tuple[str, float]:
            now = time.time()
            signer = signer_of(options, credential, now, now + GRANT_S)
            return signer.whole(WRITE), signer.expires_at

        return _Renewed(sign)
    if credential.sas or isinstance(options, FileShare):
        return Keys(credential.sas)
    found: TokenCredential
    if credential.client_secret:
        identity = _library("azure.identity")
        found = identity.ClientSecretCredential(options.tenant_id, options.client_id, credential.client_secret)
    elif options.identity:
        found = _library("azure.identity").DefaultAzureCredential()
    else:
        return Keys()

    def ask() -> tuple[str, float]:
        token = found.get_token(_SCOPE)
        return f"{BEARER}{token.token}", float(token.expires_on)

    return _Renewed(ask)


class _Renewed(Keys):
    """A token for the whole datastore, renewed before it expires."""

    def __init__(self, make: Callable[[], tuple[str, float]]) -> None:
        super().__init__(refresh=self._refreshed)
        self._make = make
        self._expires_at = 0.0

    def token(self, path: str) -> str:
        if time.time() > self._expires_at - _RENEW_BEFORE_S:
            self.renew(path, self._token)
        return self._token

    def _refreshed(self, _: list[str]) -> FreshTokens:
        made, self._expires_at = self._make()
        return FreshTokens(made)


def _library(module: str):  # type: ignore[no-untyped-def]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise errors.MissingExtra(
            f"Azure storage needs the package {error.name}, which is not installed with the server",
            f"Install it there: {install_command('azure')}",
        ) from error


@contextmanager
def _explained(spec: StoreSpec) -> Iterator[None]:
    """Turn connectors' exceptions into errors that name the datastore, and never its credential."""
    try:
        yield
    except (errors.MusterError, GeneratorExit):
        raise
    except ImportError as error:
        raise errors.MissingExtra(
            f"the datastore {spec.name} ({describe(spec)}) needs a package that is missing: {error.name or error}",
            f"Install it with the server{_with_command(spec)}.",
        ) from error
    except Exception as error:
        raise refusal_of(error, spec) from None


def _with_command(spec: StoreSpec) -> str:
    extra = extra_for(spec.options.url) if isinstance(spec.options, FsspecAddress) else None
    return f": {install_command(extra)}" if extra else ""


def refusal_of(error: Exception, spec: StoreSpec) -> errors.MusterError:
    """The user's error for a failure, with credentials masked in its message."""
    where = f"the datastore {spec.name} ({describe(spec)})"
    status = error.status if isinstance(error, TransferError) else None
    code = (error.reason if isinstance(error, TransferError) else "") or type(error).__name__
    if isinstance(error, FileNotFoundError) or status == 404:
        if code in ("ContainerNotFound", "ShareNotFound"):
            return errors.NotFound(f"{where} does not exist ({code})", "Make it first, or correct its name.")
        return errors.NotFound(f"{where} has no such file or folder ({code})", "Check the path.")
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EROFS:
        hint = f"It can only be read: `muster datastore test {spec.name} --read-only` tries that."
        return errors.AccessDenied(f"{where} is on a disk that cannot be written to", hint)
    if number in (errno.ENOSPC, errno.EDQUOT):
        return errors.DiskFull(f"{where} is full", "Free some space there, or choose another datastore.")
    if isinstance(error, PermissionError) or status in (401, 403):
        hint = "Is it right, not expired, and wide enough? `muster datastore create --replace` sets it again."
        return errors.AccessDenied(f"{where} refuses its credential ({code})", hint)
    if isinstance(error, NotImplementedError):
        return errors.JobError(
            f"{where} can only be read", f"`muster datastore test {spec.name} --read-only` tries it."
        )
    shown = without_secrets(str(error).splitlines()[0] if str(error) else "", to_json(spec.credential))
    hint = f"Check its address, options and credential: `muster datastore show {spec.name}`; --replace sets them again."
    if isinstance(error, TypeError):
        hint = "Its filesystem does not know one of the keys given by --option or --secret-options: correct them."
    if "CERTIFICATE_VERIFY_FAILED" in shown or isinstance(error.__cause__, UntrustedCertificate):
        hint = "For an authority of your own set SSL_CERT_FILE and REQUESTS_CA_BUNDLE where the server starts."
    return errors.UserError(f"{where} failed: {code}: {shown[:300]}", hint, "storage")


def without_secrets(text: str, secrets: Json) -> str:
    """A message with every text of the secrets masked."""
    for value in _texts(secrets):
        text = text.replace(value, "***")
    head, separator, _ = text.partition("sig=")
    return f"{head}sig=***" if separator else text


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, str) and len(value) >= 4:
        yield value
