"""File servers: requests, views for clients, and messages between the process on the node and the server."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import field
from typing import Literal

from muster.wire.codec import OMIT
from muster.wire.data.access import Access
from muster.wire.message import check_pattern, wire

FileServerState = Literal["starting", "serving", "failed", "stopped", "deleting"]
FillState = Literal["waiting", "listing", "filling", "filled", "failed"]

_SMALLEST_BYTES, _LARGEST_BYTES = 10**6, 10**15
_NAME = re.compile("[a-z][-a-z0-9]{0,30}[a-z0-9]")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*((?:[kmgt]i?)?b?)", re.IGNORECASE)
_FACTORS = {"B": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_ALLOWED = "2 to 32 lower-case letters, digits and '-', a letter first and no '-' last"


def read_size(text: str) -> int:
    """A size in bytes: `500GB`, `2 TB`, `64GiB`; a plain number is one of gigabytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"size: {text!r} is not a size; write it as 500GB, 2TB or 64GiB")
    factor = _FACTORS[match[2].upper()[:1] or "G"]
    return int(float(match[1]) * (1024 if "i" in match[2].lower() else 1000) ** factor)


def check_file_server_name(name: str) -> None:
    """Refuse what cannot be the name of a file server: its export and its datastore have the same name."""
    check_pattern("name", name, _NAME, _ALLOWED)


def _check_size(size_bytes: int) -> None:
    if not _SMALLEST_BYTES <= size_bytes <= _LARGEST_BYTES:
        raise ValueError(f"size: {size_bytes:,} bytes is out of range; use from 1MB to 1000TB")


def check_clients(clients: str) -> None:
    """Refuse an invalid network, or one that is not private: NFS neither encrypts nor authenticates."""
    try:
        network = ipaddress.ip_network(clients, strict=False)
    except ValueError:
        raise ValueError(f"clients: {clients!r} is not a network; write it as 10.1.0.0/16") from None
    if not network.is_private or network.prefixlen == 0:
        raise ValueError(
            f"clients: {clients} is not a private network, and NFS neither encrypts nor asks for a password; "
            "use one such as 10.1.0.0/16"
        )


@wire
class NewFileServer:
    """The body of `POST fileservers`."""

    name: str
    size_bytes: int
    """The most that it may hold."""
    cluster: str = "local"
    """The cluster, one node of which it runs on."""
    folder: str | None = None
    """Where the node keeps the data; None: in the home of the agent's user."""
    clients: str | None = None
    """The network whose machines may read; None: the cluster's `subnet`, on the local engine only this machine."""
    description: str | None = None

    def __post_init__(self) -> None:
        check_file_server_name(self.name)
        _check_size(self.size_bytes)
        if self.clients is not None:
            check_clients(self.clients)
        if self.folder is not None and not self.folder.startswith("/"):
            raise ValueError(f"folder: {self.folder!r} is not absolute; write it from the root, such as /data/files")


@wire
class FileServerChanges:
    """The body of `PATCH fileservers/NAME`."""

    size_bytes: int

    def __post_init__(self) -> None:
        _check_size(self.size_bytes)


@wire
class NewFill:
    """The body of `POST fileservers/NAME/fills`."""

    source: str
    """A folder of a datastore, or a data asset: `azureml://…`."""
    to: str = ""
    """The folder of the file server that gets the files; empty: its root."""


@wire
class FillProgress:
    """The progress of one fill."""

    id: int
    state: FillState
    done_bytes: int = 0
    total_bytes: int = 0
    done_files: int = 0
    total_files: int = 0
    text: str = ""
    """In words: the rate and the time left, or what went wrong."""
    next: str = field(default="", metadata=OMIT)
    """What the user can do about it."""


@wire
class FillView:
    """One fill, as clients see it."""

    source: str
    to: str
    created_by: str | None
    created_at: float
    progress: FillProgress


@wire
class FileServerView:
    """One file server."""

    name: str
    state: FileServerState
    size_bytes: int
    used_bytes: int
    cluster: str
    address: str | None
    """Where NFS clients find it; None until it serves."""
    port: int | None
    export: str
    folder: str | None
    """Where the data lie on the node."""
    node: str | None
    clients: str
    """Who may read."""
    datastore: str
    """The datastore by which jobs name its files."""
    run: str | None
    """The run that keeps it."""
    restarts: int
    """How often its process was restarted within this run."""
    fills: tuple[FillView, ...]
    why: str | None
    """Why it does not serve."""
    description: str | None
    created_by: str | None
    created_at: float
    updated_at: float

    @property
    def is_filled(self) -> bool:
        return all(fill.progress.state == "filled" for fill in self.fills)


# Between the process on the node and the server


@wire
class FillOrder:
    """One fill that is wanted."""

    id: int
    source: str
    to: str


@wire
class FillSource:
    """Access to the files of a fill, with their list where the server had to make it."""

    access: Access


@wire
class FileServerOrders:
    """What the process on the node should do. Orders are levels: what is done already stays done."""

    name: str
    size_bytes: int
    host: str
    """The address to listen on."""
    port: int
    """0: one that is free, which it then keeps."""
    clients: str
    folder: str | None
    fills: tuple[FillOrder, ...]
    owner: str
    """Marks the folder, so that it is not confused with another server's."""
    removes: bool = False
    """The data are no longer wanted: remove them, and end."""


@wire
class FileServerReport:
    """The report of the process on the node."""

    attempt: int
    port: int | None = None
    """Set while it serves."""
    folder: str | None = None
    used_bytes: int = 0
    restarts: int = 0
    fills: tuple[FillProgress, ...] = ()
    trouble: str = ""
    """Why it can never serve here."""
