"""Messages between an agent and its mover, one JSON line each. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from muster.host.http import Address
from muster.wire.codec import OMIT
from muster.wire.data.access import Access, HashedFile
from muster.wire.message import wire
from muster.wire.node.peers import BlocksAnswer, BlocksReport


@wire
class FileFacts:
    """A file of an output: its content, and the facts that reveal a change."""

    size: int
    mtime_ns: int
    inode: int
    sha256: str
    name: str | None = field(default=None, metadata=OMIT)
    """The name under which it was sent before the job's end."""


@wire
class Sending:
    """A file to send, its content, and the name that it gets."""

    path: str
    name: str
    size: int
    sha256: str
    already: str | None = None
    """The name under which the same content was sent there before."""


@wire
class Stage:
    """Bring an input into the cache; with `copy_to`, give the job a copy of its own."""

    what: str
    """The input's name in messages."""
    access: Access
    cache: str
    server: Address | None = None
    copy_to: str | None = None
    shared: bool = field(default=False, metadata=OMIT)
    """Other nodes may have it, or want it: `Report.blocks` asks, and the answer is BlocksHeard."""
    node: str = field(default="", metadata=OMIT)
    place: str = field(default="", metadata=OMIT)
    """Its name among nodes, where that is not its address."""
    do: Literal["stage"] = "stage"


@wire
class Bring:
    """Bring an input's files into the cache and show them one by one in a folder; it goes on until it is closed."""

    what: str
    access: Access
    cache: str
    wishes: str
    """The file in which the job says what it needs first."""
    server: Address | None = None
    shared: bool = field(default=False, metadata=OMIT)
    node: str = field(default="", metadata=OMIT)
    do: Literal["bring"] = "bring"


@wire
class Offer:
    """Pack an environment into one file of the cache, for other nodes to take."""

    what: str
    folder: str
    cache: str
    node: str
    place: str
    do: Literal["offer"] = "offer"


@wire
class Copy:
    """Give the job its own copy of a local input, hashed on the way."""

    what: str
    access: Access
    copy_to: str
    do: Literal["copy"] = "copy"


@wire
class Send:
    """Send files to an output's destination; `remove` names those that were sent early and must not stay."""

    access: Access
    files: tuple[Sending, ...]
    remove: tuple[str, ...] = ()
    server: Address | None = None
    do: Literal["send"] = "send"


@wire
class Measure:
    """Size and hash of every file of a folder; known files that are unchanged are not read again."""

    folder: str
    known: Mapping[str, FileFacts] = field(default_factory=dict)
    do: Literal["measure"] = "measure"


@wire
class Mount:
    """Show a source at a folder without staging it; it stays until the agent closes the line."""

    access: Access
    target: str
    server: Address | None = None
    do: Literal["mount"] = "mount"


@wire
class MountShare:
    """Mount an NFS share at a folder; it stays until the agent closes the line."""

    host: str
    port: int
    export: str
    target: str
    read_only: bool = True
    do: Literal["mount_share"] = "mount_share"


@wire
class Check:
    """Find out whether an output can be written, before anything is computed for it."""

    access: Access
    name: str
    """A file of the output, which is not made."""
    server: Address | None = None
    do: Literal["check"] = "check"


Request = Stage | Bring | Offer | Copy | Send | Measure | Mount | MountShare | Check


@wire
class ProgressReport:
    """How far a transfer is."""

    phase: str
    """The current step, where that is not the requested one."""
    done_bytes: int
    total_bytes: int
    done_files: int
    total_files: int
    resumed_bytes: int
    """Bytes that an earlier try had done already."""
    peer_bytes: int = field(default=0, metadata=OMIT)
    """Bytes from other nodes."""
    nodes: int = field(default=0, metadata=OMIT)
    """How many nodes they came from."""


@wire
class Done:
    """What a transfer did; which fields are filled depends on the request."""

    files: int = 0
    bytes: int = 0
    digest: str = field(default="", metadata=OMIT)
    data: str = field(default="", metadata=OMIT)
    """Where the files of a staged tree lie."""
    one_file: str | None = field(default=None, metadata=OMIT)
    """The file's name, where the input is one file."""
    found: tuple[HashedFile, ...] = field(default=(), metadata=OMIT)
    """The hashes of a registered asset's files, as its first download found them."""
    measured: Mapping[str, FileFacts] = field(default_factory=dict, metadata=OMIT)


@wire
class Failure:
    """Why a transfer failed; the code is one of the verdict's."""

    code: str
    message: str
    final: bool
    next: str = field(default="", metadata=OMIT)
    """What the user can do, where the advice for the code does not fit."""


@wire
class Report:
    """A mover's message: one of these."""

    progress: ProgressReport | None = field(default=None, metadata=OMIT)
    need: tuple[str, ...] | None = field(default=None, metadata=OMIT)
    """Files that need fresh tokens; the answer is FreshTokens."""
    blocks: BlocksReport | None = field(default=None, metadata=OMIT)
    """How far a shared input is; the answer is BlocksHeard."""
    done: Done | None = field(default=None, metadata=OMIT)
    failed: Failure | None = field(default=None, metadata=OMIT)
    arrived: bool = field(default=False, metadata=OMIT)
    """All of an input has come that is brought while its job runs."""


@wire
class BlocksHeard:
    """The server's answer about other nodes; None where it could not be asked."""

    answer: BlocksAnswer | None = None
