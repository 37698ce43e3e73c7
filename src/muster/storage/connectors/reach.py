"""How the server itself reads and writes a datastore: one small interface, three ways to carry it out."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from muster import errors
from muster.host.files import safe_path
from muster.storage.kinds import StoreSpec, describe, endpoint_of
from muster.store.backend import Store, pieces_of
from muster.store.keyring import KeyRing
from muster.wire.access import FileEntry, file_etag


class Reach(Protocol):
    """Files of one datastore by their paths."""

    def entries(self, path: str) -> Iterator[FileEntry]:
        """Every file below a folder, by its path from there."""

    def entry(self, path: str) -> FileEntry | None:
        """One file, or None where there is none of that name."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]: ...

    def write(self, path: str, pieces: Iterable[bytes], sha256: str | None = None, fresh: bool = False) -> int:
        """Whole or not at all; with `fresh` only where the name is not taken. Returns the size."""

    def remove(self, path: str) -> None: ...


def reach(spec: StoreSpec, ring: KeyRing | None = None) -> Reach:
    """The way to a registered datastore."""
    if spec.kind == "azure-blob":
        return BlobReach(spec)
    if spec.kind == "azure-file":
        return ShareReach(spec)
    if spec.kind == "fsspec":
        with _explained(spec):
            options = {**spec.options.get("options", {}), **spec.credential.get("secret_options", {})}
            return StoreReach(Store(str(spec.options["url"]), options), spec)
    path = Path(str(spec.options["path"]))
    if not path.is_dir():
        raise errors.NotFound(f"the datastore {spec.name}: there is no folder {path} here", "Make it, or mount it.")
    if spec.options.get("encrypted") and ring is None:
        hint = "Name a key under `encryption` in workspace.json."
        raise errors.Conflict(f"the datastore {spec.name} is to be encrypted, and the workspace has no key", hint)
    return StoreReach(Store(str(path), ring=ring if spec.options.get("encrypted") else None), spec)


class StoreReach:
    """A folder, or a filesystem that fsspec knows."""

    def __init__(self, store: Store, spec: StoreSpec, below: str = "") -> None:
        self._store = store
        self._spec = spec
        self._below = below

    def entries(self, path: str) -> Iterator[FileEntry]:
        folder = self._name(path) if path or self._below else ""
        cut = len(folder) + 1 if folder else 0
        with _explained(self._spec):
            for name, size, etag in self._listed(folder):
                # What a put has not finished is not there yet.
                if ".part-" not in name.rpartition("/")[2]:
                    yield FileEntry(name[cut:], size, etag=etag)

    def entry(self, path: str) -> FileEntry | None:
        name = self._name(path)
        with _explained(self._spec):
            local = self._store.local_root
            if local is not None:
                self._refuse_escape(local, name)
                if not (local / name).is_file():
                    return None
                size, at = self._store.size(name), (local / name).stat().st_mtime
                return FileEntry("", size, etag=file_etag(size, at))
            found = self._remote.info(name)
            return FileEntry("", self._size(name, found), etag=_version(found)) if found else None

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        name = self._name(path)
        with _explained(self._spec):
            if self._store.local_root is not None:
                self._refuse_escape(self._store.local_root, name)
            with self._store.open(name) as file:
                file.seek(offset)
                yield from pieces_of(file, length)

    def write(self, path: str, pieces: Iterable[bytes], sha256: str | None = None, fresh: bool = False) -> int:
        name = self._name(path)
        with _explained(self._spec):
            if self._store.local_root is not None:
                self._refuse_escape(self._store.local_root, name)
            if fresh and self._store.exists(name):
                raise _taken(self._spec, path)
            return self._store.put(name, pieces, sha256)

    def remove(self, path: str) -> None:
        with _explained(self._spec):
            self._store.remove(self._name(path))

    def _name(self, path: str) -> str:
        return safe_path("/".join(part for part in (self._below, path) if part))

    def _listed(self, folder: str) -> Iterator[tuple[str, int, str]]:
        """Every file below a folder: its name, its size and what this version of it is called."""
        if self._store.local_root is not None:
            for name, size, at in self._store.files(folder):
                yield name, size, file_etag(size, at)
            return
        for name, info in self._remote.find(folder):
            yield name, self._size(name, info), _version(info)

    def _size(self, name: str, info: Mapping[str, Any]) -> int:
        return self._store.size(name) if self._store.encrypted else int(info.get("size") or 0)

    @property
    def _remote(self) -> _Remote:
        return _Remote(*self._store.filesystem)

    def _refuse_escape(self, root: Path, name: str) -> None:
        if not (root / name).resolve().is_relative_to(root.resolve()):
            raise errors.AccessDenied(f"{name} is a link that leaves the datastore {self._spec.name}")


@dataclass(frozen=True)
class _Remote:
    """What a filesystem tells of its files. Listings that it keeps are dropped first: others write there too."""

    filesystem: Any
    root: str

    def info(self, name: str) -> Mapping[str, Any] | None:
        path = f"{self.root}/{name}"
        self.filesystem.invalidate_cache(path.rpartition("/")[0])
        try:
            found: Mapping[str, Any] = self.filesystem.info(path)
        except FileNotFoundError:
            return None
        return found if found.get("type") == "file" else None

    def find(self, folder: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        base = f"{self.root}/{folder}".rstrip("/")
        self.filesystem.invalidate_cache()
        try:
            found = self.filesystem.find(base, detail=True)
            if not found:
                # A search passes over what fails on its way.
                self.filesystem.ls(base, detail=False)
        except FileNotFoundError:
            return
        for path, info in sorted(found.items()):
            inner = path.removeprefix(base).lstrip("/")
            if inner and info.get("type") == "file":
                yield f"{folder}/{inner}" if folder else inner, info


def _version(info: Mapping[str, Any]) -> str:
    """What a filesystem calls this version of a file: its own mark, else its size and, where it is told, its time."""
    for key in ("etag", "ETag", "md5Hash"):
        if info.get(key):
            return str(info[key]).strip('"')
    for key in ("mtime", "last_modified", "LastModified", "modified", "updated"):
        at = info.get(key)
        if isinstance(at, datetime):
            at = at.timestamp()
        if isinstance(at, int | float):
            return file_etag(int(info.get("size") or 0), at)
    return f"{int(info.get('size') or 0):x}"


class BlobReach:
    """A container of Azure Blob storage."""

    def __init__(self, spec: StoreSpec) -> None:
        blob = _azure("azure.storage.blob")
        self._spec = spec
        self._below = str(spec.options.get("path", ""))
        self._container = blob.ContainerClient(
            endpoint_of(spec),
            str(spec.options["container"]),
            credential=_credential(spec),
            retry_policy=blob.LinearRetry(backoff=1, retry_total=3, random_jitter_range=1),
            connection_timeout=10,
            max_single_put_size=8 << 20,
            max_block_size=8 << 20,
        )

    def entries(self, path: str) -> Iterator[FileEntry]:
        folder = self._name(path)
        prefix = f"{folder}/" if folder else ""
        with _explained(self._spec):
            for item in self._container.list_blobs(name_starts_with=prefix or None):
                inner = item.name.removeprefix(prefix)
                # A hierarchical account lists its folders too.
                if inner and not inner.endswith("/") and (item.metadata or {}).get("hdi_isfolder") != "true":
                    yield FileEntry(inner, int(item.size), etag=item.etag)

    def entry(self, path: str) -> FileEntry | None:
        from azure.core.exceptions import ResourceNotFoundError

        if not self._name(path):
            return None
        with _explained(self._spec):
            try:
                found = self._container.get_blob_client(self._name(path)).get_blob_properties()
            except ResourceNotFoundError as error:
                if getattr(error, "error_code", None) == "ContainerNotFound":
                    raise
                return None
        return FileEntry("", int(found.size), (found.metadata or {}).get("sha256"), found.etag.strip('"'))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        with _explained(self._spec):
            client = self._container.get_blob_client(self._name(path))
            yield from client.download_blob(offset=offset if length else offset or None, length=length).chunks()

    def write(self, path: str, pieces: Iterable[bytes], sha256: str | None = None, fresh: bool = False) -> int:
        from azure.core.exceptions import ResourceExistsError

        counted = _Counted(pieces, sha256, path)
        content = iter(counted)
        first = next(content, None)
        client = self._container.get_blob_client(self._name(path))
        with _explained(self._spec):
            try:
                # The library waits for ever for the first piece of a stream that has none.
                client.upload_blob(
                    chain([first], content) if first is not None else b"",
                    overwrite=not fresh,
                    metadata={"sha256": sha256} if sha256 else None,
                )
            except ResourceExistsError:
                raise _taken(self._spec, path) from None
        return counted.size

    def remove(self, path: str) -> None:
        with _explained(self._spec):
            self._container.delete_blob(self._name(path))

    def _name(self, path: str) -> str:
        return "/".join(part for part in (self._below, safe_path(path) if path else "") if part)


class ShareReach:
    """A share of Azure Files."""

    def __init__(self, spec: StoreSpec) -> None:
        files = _azure("azure.storage.fileshare")
        self._spec = spec
        self._below = str(spec.options.get("path", ""))
        self._share = files.ShareClient(
            endpoint_of(spec),
            str(spec.options["share"]),
            credential=_credential(spec),
            retry_policy=files.LinearRetry(backoff=1, retry_total=3, random_jitter_range=1),
            connection_timeout=10,
        )

    def entries(self, path: str) -> Iterator[FileEntry]:
        folder = self._name(path)
        with _explained(self._spec):
            yield from self._below_folder(folder, "")

    def _below_folder(self, folder: str, inner: str) -> Iterator[FileEntry]:
        here = "/".join(part for part in (folder, inner) if part)
        for item in self._share.get_directory_client(here or None).list_directories_and_files(include=["etag"]):
            name = f"{inner}/{item['name']}" if inner else str(item["name"])
            if item["is_directory"]:
                yield from self._below_folder(folder, name)
            else:
                yield FileEntry(name, int(item["size"]), etag=item.get("etag"))

    def entry(self, path: str) -> FileEntry | None:
        from azure.core.exceptions import ResourceNotFoundError

        with _explained(self._spec):
            try:
                found = self._share.get_file_client(self._name(path)).get_file_properties()
            except ResourceNotFoundError:
                return None
        return FileEntry("", int(found.size), (found.metadata or {}).get("sha256"), found.etag.strip('"'))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        with _explained(self._spec):
            client = self._share.get_file_client(self._name(path))
            yield from client.download_file(offset=offset if length else offset or None, length=length).chunks()

    def write(self, path: str, pieces: Iterable[bytes], sha256: str | None = None, fresh: bool = False) -> int:
        """A file share knows no upload that is whole or not at all: the file gets its name when it is complete."""
        name = self._name(path)
        if fresh and self.entry(path) is not None:
            raise _taken(self._spec, path)
        counted = _Counted(pieces, sha256, path)
        with _explained(self._spec):
            self._make_folders(name)
            part = self._share.get_file_client(f"{name}.part-muster")
            with tempfile.TemporaryFile() as spool:
                # Its size has to be told before the first byte.
                for piece in counted:
                    spool.write(piece)
                spool.seek(0)
                part.upload_file(spool, length=counted.size, max_concurrency=2)
            part.rename_file(name, overwrite=not fresh)
        return counted.size

    def remove(self, path: str) -> None:
        with _explained(self._spec):
            self._share.get_file_client(self._name(path)).delete_file()

    def _make_folders(self, name: str) -> None:
        from azure.core.exceptions import ResourceExistsError

        parts = name.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            try:
                self._share.get_directory_client("/".join(parts[:depth])).create_directory()
            except ResourceExistsError:
                continue

    def _name(self, path: str) -> str:
        return "/".join(part for part in (self._below, safe_path(path) if path else "") if part)


class _Counted:
    """Pieces that are hashed and counted on their way; a wrong hash is raised before the last one is handed out."""

    def __init__(self, pieces: Iterable[bytes], sha256: str | None, name: str) -> None:
        self._pieces = pieces
        self._sha256 = sha256
        self._name = name
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for piece in self._pieces:
            digest.update(piece)
            self.size += len(piece)
            yield piece
        if self._sha256 is not None and digest.hexdigest() != self._sha256:
            raise errors.JobError(
                f"{self._name} arrived damaged: sha256 {digest.hexdigest()}, expected {self._sha256}", "Send it again."
            )


def _credential(spec: StoreSpec) -> Any:
    given = spec.credential
    if "account_key" in given:
        return {"account_name": str(spec.options["account"]), "account_key": str(given["account_key"])}
    if "sas" in given:
        return _azure("azure.core.credentials").AzureSasCredential(str(given["sas"]))
    if "client_secret" in given:
        identity = _azure("azure.identity")
        return identity.ClientSecretCredential(
            str(spec.options["tenant_id"]), str(spec.options["client_id"]), str(given["client_secret"])
        )
    if spec.options.get("identity"):
        return _azure("azure.identity").DefaultAzureCredential()
    return None


def _azure(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise errors.MissingExtra(
            f"Azure storage needs the package {error.name}, which is not installed beside the server",
            "Install it there: pip install 'muster[azure]'.",
        ) from error


@contextmanager
def _explained(spec: StoreSpec) -> Iterator[None]:
    """Turn what libraries raise into an error that names the datastore, and never what opens it."""
    try:
        yield
    except (errors.MusterError, GeneratorExit):
        raise
    except ImportError as error:
        raise errors.MissingExtra(
            f"the datastore {spec.name} ({describe(spec)}) needs a package that is missing: {error.name or error}",
            "Install it beside the server.",
        ) from error
    except Exception as error:
        raise refusal_of(error, spec) from None


def refusal_of(error: Exception, spec: StoreSpec) -> errors.MusterError:
    """What a failure of a storage library means, without its words where they may hold a credential."""
    where = f"the datastore {spec.name} ({describe(spec)})"
    status = getattr(error, "status_code", None)
    known = getattr(error, "error_code", None)
    code = getattr(known, "value", known) or type(error).__name__
    if isinstance(error, FileNotFoundError) or status == 404:
        if code in ("ContainerNotFound", "ShareNotFound"):
            return errors.NotFound(f"{where} does not exist ({code})", "Make it first, or correct its name.")
        return errors.NotFound(f"{where} has no such file or folder ({code})", "Check the path.")
    if isinstance(error, PermissionError) or status in (401, 403):
        hint = "Is it right, not expired, and wide enough? `muster datastore create --replace` sets it anew."
        return errors.AccessDenied(f"{where} refuses its credential ({code})", hint)
    if isinstance(error, NotImplementedError):
        return errors.JobError(
            f"{where} can only be read", f"`muster datastore test {spec.name} --read-only` tries it."
        )
    shown = without_secrets(str(error).splitlines()[0] if str(error) else "", spec.credential)
    hint = f"`muster datastore test {spec.name}` tries it again."
    if "CERTIFICATE_VERIFY_FAILED" in shown:
        hint = "For an authority of your own set SSL_CERT_FILE and REQUESTS_CA_BUNDLE where the server starts."
    return errors.UserError(f"{where} failed: {code}: {shown[:300]}", hint, "storage")


def without_secrets(text: str, credential: Mapping[str, Any]) -> str:
    for value in _texts(credential):
        text = text.replace(value, "***")
    head, separator, _ = text.partition("sig=")
    return f"{head}sig=***" if separator else text


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, str) and len(value) >= 4:
        yield value


def _taken(spec: StoreSpec, path: str) -> errors.Conflict:
    return errors.Conflict(f"{path} exists already in the datastore {spec.name}", "Choose another name.")


__all__ = ["Reach", "StoreReach", "reach", "refusal_of", "without_secrets"]
