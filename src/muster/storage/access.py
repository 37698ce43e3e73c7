"""How a node reaches one input or output: plain data that the server puts into an order. Standard library only.

kind        `url`                                       what opens it
file        an absolute path on the node                nothing: the node reads and writes it itself
azure-blob  https://ACCOUNT…/CONTAINER/PATH             `token`, a SAS without the question mark; empty: public
azure-file  https://ACCOUNT…/SHARE/PATH                 `token`, as above
http        an address without credentials              nothing; one file, read only
fsspec      any other fsspec address                    `options`, which never hold a credential
muster      a path of the server, `/api/v1/data/…`      `token`, a grant, sent as the header `Muster-Grant`
refused     empty                                       nothing can: `options["message"]` says why

Below a folder's `url` the files lie under their own paths. Where a store cannot sign for a whole folder (`per_file`),
the node asks for each file's token. What a node asks of the server, all below `/api/v1/agents/NODE/`:

GET  manifest?run&attempt&name  {files: [FileEntry…]} of an input, with tokens where the access says `per_file`
POST grants                     {run, attempt, paths: {OUTPUT: [path…]}} -> {inputs: {name: access}, outputs: {name:
                                access}, tokens: {OUTPUT: {path: token}}}: fresh ones, as often as they are needed
POST hashes                     {run, attempt, name, files: [FileEntry…]}: what a first download found; 409 where it
                                differs from what is known of the asset

Of kind `muster`: `GET url` (ranges), `HEAD url` (Content-Length, ETag), `GET url?list=1` ({files: [FileEntry…]}, paths
relative to `url`), `PUT url?sha256=HEX` (whole or not at all; `If-None-Match: *` answers 409 where the name is taken),
`DELETE url`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote

GRANT_HEADER = "Muster-Grant"
INLINE_FILES = 200
"""Manifests of at most so many files travel in the order."""

READ = "read"
WRITE = "write"
_QUOTED = ("azure-blob", "azure-file", "http")
"""Kinds whose `url` is written with percent signs already; the path of `muster` is quoted when it is sent."""


@dataclass(frozen=True)
class FileEntry:
    """One file of a folder."""

    path: str
    """Relative to the folder; empty where the input is the file itself."""
    size: int
    sha256: str | None = None
    """Absent where nobody has read the whole file yet: it is told to the server after the first download."""
    etag: str | None = None
    """What the source calls this version of the file."""
    token: str = ""
    """Its own token, where the access says `per_file`."""


@dataclass(frozen=True)
class Access:
    """Where bytes are, and what opens them until when."""

    kind: str
    url: str
    scope: str = READ
    folder: bool = True
    label: str = ""
    """The address as the user wrote it, for messages."""
    token: str = field(default="", repr=False)
    per_file: bool = False
    expires_at: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    asset: str | None = None
    """`NAME:VERSION` of the data asset, whose content never changes."""
    manifest: tuple[FileEntry, ...] | None = None
    """What a folder holds, where that is known and short."""
    manifest_by_reference: bool = False
    """What it holds is known, or has to be listed by the server: `GET agents/NODE/manifest`."""

    def url_of(self, path: str) -> str:
        """The address of one file below the folder."""
        if not path:
            return self.url
        joint = "" if self.url.endswith("/") else "/"
        return f"{self.url}{joint}{quote(path) if self.kind in _QUOTED else path}"

    def token_of(self, entry: FileEntry) -> str:
        return entry.token if self.per_file else self.token


def file_etag(size: int, written_at: float) -> str:
    """What a file's version is called where it lies in a folder: a change of its size or time shows."""
    return f"{size:x}-{int(written_at * 1e6):x}"


def access_to_json(access: Access) -> dict[str, Any]:
    data = asdict(access)
    data["options"] = dict(access.options)
    return data


def access_from_json(data: Mapping[str, Any]) -> Access:
    fields = dict(data)
    if fields.get("manifest") is not None:
        fields["manifest"] = tuple(FileEntry(**item) for item in fields["manifest"])
    return Access(**fields)


def entries_from_json(items: list[Mapping[str, Any]]) -> tuple[FileEntry, ...]:
    return tuple(FileEntry(**item) for item in items)
