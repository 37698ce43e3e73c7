"""How nodes and people reach storage, and the files that they find there.

kind        `url`                                       credentials
file        an absolute path on the node                none: the node reads and writes it itself
azure-blob  https://ACCOUNT…/CONTAINER/PATH             `token`, a SAS without the question mark; empty: public
azure-file  https://ACCOUNT…/SHARE/PATH                 `token`, as above
http        an address without credentials              none; one file, read only
fsspec      any other fsspec address                    `options`, which never hold a credential
muster      a path of the server, `/api/v1/data/…`      `token`, a grant, sent as the header `Muster-Grant`
peers       empty                                       none: only other nodes have it, and they are asked
refused     empty                                       none: `options["message"]` says why it cannot be reached

Below a folder's `url` the files are at their own paths. Where a store cannot sign for a whole folder (`per_file`),
the node requests a token for each file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal

from muster.defaults import GRANT_MAX_S, GRANT_S
from muster.wire.codec import OMIT, Json
from muster.wire.message import wire

GRANT_HEADER = "Muster-Grant"
HASH_HEADER = "Muster-Sha256"
"""The hash of a file's content, where `hash=1` asks for it with `HEAD`."""
INLINE_FILES = 200
"""Manifests of at most so many files travel in the order."""

Scope = Literal["read", "write"]
PEERS: Final = "peers"
READ: Final = "read"
WRITE: Final = "write"
Use = Literal["read", "write", "delete"]
"""What a person wants access for."""


@wire
class FileEntry:
    """One file of a folder."""

    path: str
    """Relative to the folder; empty where the input is the file itself."""
    size: int
    sha256: str | None = None
    """None until the whole file has been read: the server learns it from the first download."""
    etag: str | None = None
    """What the source calls this version of the file."""
    token: str = field(default="", repr=False)
    """Its own token, where the access says `per_file`."""


def file_etag(size: int, written_at: float) -> str:
    """The version of a file in a folder: it changes with the file's size or time."""
    return f"{size:x}-{int(written_at * 1e6):x}"


@wire
class FileList:
    """The files of an input, an asset or a folder of a datastore."""

    files: tuple[FileEntry, ...]
    left_out: tuple[str, ...] = field(default=(), metadata=OMIT)
    """Links that lead out of the datastore: the first few."""


@wire
class HashedFile:
    """A file whose content is known."""

    path: str
    size: int
    sha256: str


@wire
class FileBrief:
    """A file by name and size."""

    path: str
    size: int


@wire
class Access:
    """Where bytes are, and the credentials that open them until they expire."""

    kind: str
    url: str
    scope: Scope = READ
    folder: bool = True
    label: str = ""
    """The address as the user wrote it, for messages."""
    token: str = field(default="", repr=False)
    per_file: bool = False
    expires_at: float | None = None
    options: Mapping[str, Json] = field(default_factory=dict)
    asset: str | None = None
    """`NAME:VERSION` of the data asset, whose content never changes."""
    manifest: tuple[FileEntry, ...] | None = None
    """The folder's files, where they are known and few."""
    mount: str = field(default="", metadata=OMIT)
    """The node's mount that contains `url`, where the files are on a share that the cluster mounts."""
    manifest_by_reference: bool = False
    """The folder's files are fetched with `GET agents/NODE/manifest`, from the server's records or a listing."""


def where_of(access: Access) -> str:
    """The location that an access leads to, whatever its credentials."""
    return f"{access.kind}:{access.url}"


@wire
class NewGrant:
    """The body of `POST grants`."""

    address: str
    scope: Scope = READ
    folder: bool = True
    lifetime_s: float = GRANT_S

    def __post_init__(self) -> None:
        if not 0 < self.lifetime_s <= GRANT_MAX_S:
            raise ValueError(
                f"lifetime_s {self.lifetime_s!r} is out of range: use more than 0, at most {GRANT_MAX_S:g}"
            )


@wire
class GrantBrief:
    """A grant without its token."""

    id: str
    store: str
    path: str
    scope: Scope
    subject: str
    created_at: float
    expires_at: float


@wire
class GrantView(GrantBrief):
    """A grant with its state."""

    revoked_at: float | None = None


@wire
class IssuedGrant(GrantBrief):
    """A grant with its token, which is seen only once."""

    url: str
    token: str = field(repr=False)


@wire
class NewAccess:
    """The body of `POST access/read`, `access/write` and `access/delete`: direct access to a folder."""

    address: str
    """A folder of a datastore, or the folder of a data asset."""
    files: tuple[str, ...] = ()
    """The paths below the folder that are about to be read, written or removed."""
    direct: bool = True
    """Directly to the storage where possible; otherwise through the server."""


@wire
class OpenedAccess:
    """The caller's own access to a folder."""

    access: Access
    """Of kind `muster` without a token: the caller's own opens it."""
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Tokens of the requested files, where the store signs file by file."""
    folder_id: str | None = None
    """Of kind `file`: which folder the server means, for a caller who may be on another machine."""


def folder_id(device: int, inode: int) -> str:
    """The identity of a folder on its machine."""
    return f"{device:x}:{inode:x}"
