"""The access that a run gets to one input or output of a datastore: as narrow as the store allows. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import quote

from muster.storage.addresses import datastore_address, joined
from muster.storage.grants import Grant, new_id, sign
from muster.storage.kinds import (
    BlobContainer,
    Credential,
    FileShare,
    FsspecAddress,
    LocalFolder,
    Options,
    SharedFolder,
    StoreSpec,
    WorkspaceFolder,
    endpoint_of,
    root_of,
)
from muster.storage.sas import Signer, is_narrow
from muster.wire.data.access import READ, Access, FileEntry, Scope

DATA_ROUTE = "/api/v1/data"


@dataclass(frozen=True)
class Asked:
    """One input or output, and for whom."""

    path: str
    """Below the datastore."""
    scope: Scope = READ
    folder: bool = True
    subject: str = ""


@dataclass(frozen=True)
class Terms:
    """The terms that all grants made at one moment share."""

    key: bytes
    now: float
    lifetime_s: float
    same_machine: bool = False
    """The node sees the folders of the server's machine."""
    own_folder: str | None = None
    """Where the workspace's own datastore lies, if that is a plain folder."""
    addresses: str = ""
    """The only addresses from which Azure's signatures are valid: `FIRST-LAST`."""

    @property
    def expires_at(self) -> float:
        return self.now + self.lifetime_s


def access_of(spec: StoreSpec, asked: Asked, terms: Terms) -> Access:
    """How a node reaches a path of a datastore."""
    label = datastore_address(spec.name, asked.path)
    options = spec.options
    folder = _plain_folder(options, terms)
    if folder is not None:
        return Access("file", joined(folder, asked.path), asked.scope, asked.folder, label)
    if isinstance(options, FsspecAddress) and not spec.credential.kind:
        url = joined(options.url, asked.path)
        kind = "http" if url.startswith(("http://", "https://")) and not asked.folder else "fsspec"
        return Access(kind, url, asked.scope, asked.folder, label, options=options.options)
    if isinstance(options, BlobContainer | FileShare):
        found = _azure(options, spec.credential, asked, terms)
        if found is not None:
            return replace(found, label=label)
    return _through_server(spec, asked, terms, label)


def file_token(spec: StoreSpec, path: str, scope: Scope, terms: Terms) -> str:
    """The token of one file of a store that signs file by file."""
    assert isinstance(spec.options, BlobContainer | FileShare)
    signer = signer_of(spec.options, spec.credential, terms.now, terms.expires_at, terms.addresses)
    return signer.file(joined(spec.options.path, path), scope)


def signed(access: Access, spec: StoreSpec, folder: str, entries: Iterable[FileEntry], terms: Terms) -> list[FileEntry]:
    """Files of a folder, each with its own token where the access needs that."""
    if not access.per_file:
        return list(entries)
    return [replace(entry, token=file_token(spec, joined(folder, entry.path), READ, terms)) for entry in entries]


def _plain_folder(options: Options, terms: Terms) -> str | None:
    """The folder of a datastore that the node reads and writes itself."""
    if isinstance(options, SharedFolder):
        return options.path
    if isinstance(options, LocalFolder) and terms.same_machine and not options.encrypted:
        return options.path
    return terms.own_folder if isinstance(options, WorkspaceFolder) and terms.same_machine else None


def _azure(options: BlobContainer | FileShare, credential: Credential, asked: Asked, terms: Terms) -> Access | None:
    """Direct access to the service, if its credential can be made narrow; None: through the server."""
    inner = joined(options.path, asked.path)
    url = f"{endpoint_of(options)}/{root_of(options)}/{quote(inner)}".rstrip("/")
    access = Access(options.kind, url, asked.scope, asked.folder)
    listed = asked.folder and asked.scope == READ
    if credential.account_key:
        access = replace(access, expires_at=terms.expires_at)
        signer = signer_of(options, credential, terms.now, terms.expires_at, terms.addresses)
        if not asked.folder:
            return replace(access, token=signer.file(inner, asked.scope))
        if isinstance(options, BlobContainer) and options.hierarchical:
            return replace(access, token=signer.folder(inner, asked.scope))
        return replace(access, per_file=True, manifest_by_reference=listed)
    if credential.sas:
        narrow = is_narrow(credential.sas, scope=asked.scope, folder=asked.folder, whole_store=not asked.path)
        return replace(access, token=credential.sas) if narrow else None
    if isinstance(options, BlobContainer) and not credential.kind and not options.identity:
        return replace(access, manifest_by_reference=listed)
    return None


def signer_of(
    options: BlobContainer | FileShare, credential: Credential, now: float, expires_at: float, addresses: str = ""
) -> Signer:
    """The signer for an Azure datastore, with its account's key."""
    service: Literal["blob", "file"] = "file" if isinstance(options, FileShare) else "blob"
    https_only = endpoint_of(options).startswith("https:")
    return Signer(
        service, options.account, credential.account_key, root_of(options), now, expires_at, https_only, addresses
    )


def _through_server(spec: StoreSpec, asked: Asked, terms: Terms, label: str) -> Access:
    grant = Grant(
        new_id(), spec.name, asked.path, asked.folder, asked.scope, terms.now, terms.expires_at, asked.subject
    )
    url = f"{DATA_ROUTE}/{spec.name}/{asked.path}".rstrip("/")
    token = sign(grant, terms.key)
    return Access("muster", url, asked.scope, asked.folder, label, token, expires_at=terms.expires_at)
