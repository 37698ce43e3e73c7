"""The protocol between agents and the server.

An agent sends *deliveries*: a sequence of frames, each one JSON line, followed by `size` raw bytes where the line has
a `size`. Frames are applied in order, and sending one again is harmless: a chunk is addressed by (run, attempt,
stream, offset); an event by its content.

The server answers with how much of each stream it has, and lists its *orders*: for every attempt that concerns the
node, the desired state. Orders are levels, not edges, so a lost answer costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, ClassVar, Literal

from muster.defaults import GRACE_CANCEL_S, LOG_LIMIT_BYTES, PROTOCOL_VERSION, STALE_GANG_S
from muster.wire.codec import OMIT, WireError, from_json, to_json
from muster.wire.data.access import Access, HashedFile
from muster.wire.environments import BuiltEnvironment
from muster.wire.message import wire
from muster.wire.node.builds import BuildOrder
from muster.wire.node.containers import Confinement, Container
from muster.wire.node.devices import Devices
from muster.wire.node.plan import Needs, NodePlan
from muster.wire.node.recipes import Recipe
from muster.wire.node.tunnels import TunnelOrder
from muster.wire.states import Level
from muster.wire.verdicts import Refusal

AttemptKey = tuple[str, int]
"""A run's id and the number of its attempt."""

Action = Literal["prepare", "go", "stop", "forget"]


@wire
class AgentConfig:
    """Written by an engine to a 0600 file; `muster-agent CONFIG` is the whole command line."""

    node: str
    cluster: str
    root: str
    """The node's folder (NodePaths)."""
    server: tuple[str, ...]
    """Addresses to try: `unix:/path`, `https://host:port`, or `file:/path` of a shared folder."""
    token: str = field(repr=False)
    address: str = "127.0.0.1"
    """The address at which other nodes reach this one; empty: the agent detects it."""
    gpus: tuple[str, ...] | None = None
    """GPUs that the node may offer; None: all that are found."""
    pinned_certificate: str | None = None
    """PEM text that the server must present."""
    setup: str | None = None
    """A command that the node runs once before its first job."""
    stale_after_s: float = STALE_GANG_S
    long_lived: bool = True
    """The agent stays when it is idle; otherwise it ends after its last attempt is forgotten."""
    linger_s: float | None = None
    """How long an idle agent keeps its node while the server is away; None: indefinitely."""
    subnet: str | None = field(default=None, metadata=OMIT)
    """The network that may connect to ports of the node, such as `10.1.0.0/16`; None: any."""


@wire
class ServerContact:
    """An agent's connectivity, written to its folder: engines read it there while the server cannot be reached."""

    host: str
    """The machine's name as its manager knows it."""
    reached: bool
    met: Mapping[str, str] = field(default_factory=dict)
    """The error at each address that it tried."""

    @property
    def trouble(self) -> str:
        """Empty where the server was reached, or nothing has been tried yet."""
        return "" if self.reached else "; ".join(f"{address}: {met}" for address, met in self.met.items())


@wire
class Hello:
    """The body of `POST agents/hello`: an agent introduces itself."""

    node: str
    cluster: str
    agent: str
    """The id of this agent process."""
    protocol: int
    version: str = ""
    host: str = ""
    address: str = ""
    pid: int = 0
    cpus: int = 0
    memory_bytes: int = 0
    gpus: tuple[str, ...] = ()
    holding: tuple[AttemptKey, ...] = ()
    setup_error: str | None = field(default=None, metadata=OMIT)
    setup_log: str | None = field(default=None, metadata=OMIT)
    builds: bool = field(default=False, metadata=OMIT)
    """It accepts orders to build environments."""


@wire
class Welcome:
    """The answer to a hello."""

    ok: bool = True
    protocol: int = PROTOCOL_VERSION


# Orders


@wire
class InputOrder:
    """One input of an attempt."""

    name: str
    source: str
    mode: str
    type: str
    access: Access | None = None
    """None: `source` is a path on the node."""
    shared: bool = field(default=False, metadata=OMIT)
    """Other nodes may have it, or need it: they exchange blocks."""
    own_cache: bool = field(default=False, metadata=OMIT)
    """The node is one of several simulated ones on a machine: it keeps a cache of its own."""


@wire
class OutputOrder:
    """One output; with an access it goes to a datastore, otherwise it is kept with the run."""

    name: str
    mode: str
    type: str
    access: Access | None = None


@wire
class Order:
    """The desired state of one attempt on one node.

    prepare  make the folders, fetch the code, hold the ports; then wait for go
             (with `plan` set: go on at once)
    go       start the ranks of `plan`
    stop     end the ranks: SIGTERM, `grace_s`, SIGKILL; then deliver
    forget   everything is delivered or no longer wanted: remove the folder
    """

    run: str
    attempt: int
    action: Action
    node_rank: int = 0
    num_nodes: int = 1
    snapshot: str | None = None
    ports_count: int = 0
    ports_preferred: int = 0
    ports_avoid: tuple[int, ...] = ()
    inputs: tuple[InputOrder, ...] = ()
    outputs: tuple[str, ...] = ()
    python: str | None = None
    """Interpreter for the ranks; None: the agent's own."""
    user_env: Mapping[str, str] = field(default_factory=dict)
    plan: NodePlan | None = None
    timeout_s: float | None = None
    grace_s: float = GRACE_CANCEL_S
    stop_reason: str = ""
    """rank_failed | rank_waited | cancelled | killed | timeout | node_lost | preempted | superseded | done | abandoned

    The last one only ends the delivery of what the attempt left.
    """
    resume: tuple[int, ...] = ()
    """Checkpoints to resume from, the newest first; a damaged one is skipped."""
    log_limit_bytes: int = LOG_LIMIT_BYTES
    output_orders: tuple[OutputOrder, ...] = ()
    """How each of `outputs` is written and where it goes."""
    masked: tuple[str, ...] = field(default=(), repr=False)
    """Secret values that must not appear in what the ranks print."""
    needs: Needs | None = None
    """What is checked on the node before ranks start."""
    environment: Recipe | None = None
    """The environment to build on `python`; None: ranks run in `python` as it is."""
    mpi: bool = False
    """The ranks are started by an mpirun, which must be found before they start."""
    shared: bool = field(default=False, metadata=OMIT)
    """Code, environment and checkpoint are fetched from other nodes that have them."""
    own_cache: bool = field(default=False, metadata=OMIT)
    """As for an input."""
    run_token: str = field(default="", repr=False, metadata=OMIT)
    """Gives access to the run itself at the server while the attempt is open."""
    secret: str = field(default="", repr=False)
    """Known only to the nodes of this attempt; authenticates its mpirun to them."""
    container: Container | None = None
    """The image that the ranks run in."""
    mounts: tuple[str, ...] = field(default=(), metadata=OMIT)
    """Names of the shares that are mounted for the attempt; details come from `GET agents/NODE/mounts`."""
    sandbox: Confinement | None = field(default=None, metadata=OMIT)
    """The sandbox of ranks without an image; None: they run as the agent's user."""

    @property
    def key(self) -> AttemptKey:
        return (self.run, self.attempt)


@wire
class Orders:
    """The answer to `GET agents/NODE/orders`."""

    version: int
    """Sent back as `seen`: the server waits until there is something newer."""
    orders: tuple[Order, ...]
    leave: bool = False
    """The agent should end once its attempts have ended."""
    tunnels: tuple[TunnelOrder, ...] = field(default=(), metadata=OMIT)
    """Tunnels that wait for this node."""
    builds: tuple[BuildOrder, ...] = field(default=(), metadata=OMIT)


# Events


@wire
class Facts:
    """What a node found out about itself before ranks start."""

    notices: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict, metadata=OMIT)
    """By module."""
    devices: Devices | None = field(default=None, metadata=OMIT)
    machine: str = field(default="", metadata=OMIT)
    """The same for agents on one machine with one host name."""


@wire
class Prepared:
    """The attempt can start here."""

    kind: ClassVar[str] = "prepared"

    ports: tuple[int, ...] = ()
    address: str = ""
    resumed: int | None = None
    """The checkpoint that was restored."""
    facts: Facts | None = field(default=None, metadata=OMIT)
    environment: BuiltEnvironment | None = field(default=None, metadata=OMIT)


@wire
class Refused(Refusal):
    """The attempt could not be prepared or started."""

    kind: ClassVar[str] = "refused"


@wire
class StartedRank:
    """One rank that runs."""

    rank: int
    pid: int | None
    at: float


@wire
class Started:
    """Ranks were started; those that mpirun starts come later than the others."""

    kind: ClassVar[str] = "started"

    ranks: tuple[StartedRank, ...] = ()


@wire
class Exited:
    """A rank has ended, or could not be started."""

    kind: ClassVar[str] = "exited"

    rank: int
    exit_code: int | None
    signal: int | None
    expected: bool
    """Muster's own signal ended it."""
    at: float
    max_rss_kb: int | None = field(default=None, metadata=OMIT)
    core_dumped: bool | None = field(default=None, metadata=OMIT)
    oom_killed: bool | None = field(default=None, metadata=OMIT)
    """The kernel's OOM killer struck on the node."""
    refusal: str | None = field(default=None, metadata=OMIT)
    """Why it could not be started."""
    lost_with: str | None = field(default=None, metadata=OMIT)
    """Nobody saw its end: it was lost with its "keeper", "agent" or "mpirun"."""
    waited: bool | None = field(default=None, metadata=OMIT)
    """The end of its log blames other ranks, so their stacks matter."""
    said_at: float | None = field(default=None, metadata=OMIT)
    """When it last wrote to its log: the culprit's last line comes before others miss it, its end may come after."""


@wire
class TimedOut:
    """The attempt's time limit has passed; ranks are being stopped."""

    kind: ClassVar[str] = "timed_out"


@wire
class Leaving:
    """The agent was asked to end; ranks are being stopped."""

    kind: ClassVar[str] = "leaving"


@wire
class Ended:
    """No process of the attempt is left on the node."""

    kind: ClassVar[str] = "ended"

    at: float
    reason: str


@wire
class Delivered:
    """Every byte, file and output was delivered, or never will be."""

    kind: ClassVar[str] = "delivered"

    files: tuple[HashedFile, ...] = ()
    """The first thousand: the server recorded all of them on arrival."""
    notes: tuple[str, ...] = ()
    """What was not kept, and why."""
    undelivered: Refusal | None = field(default=None, metadata=OMIT)
    """Why an output was not delivered, or what was given up when the delivery was cancelled."""


@wire
class Noted:
    """A note for the followers of the run."""

    kind: ClassVar[str] = "noted"

    text: str
    level: Level = "warning"


EventData = Prepared | Refused | Started | Exited | TimedOut | Leaving | Ended | Delivered | Noted

_EVENTS: Mapping[str, type[EventData]] = {
    data.kind: data for data in (Prepared, Refused, Started, Exited, TimedOut, Leaving, Ended, Delivered, Noted)
}


@dataclass(frozen=True)
class Event:
    """Something that happened to an attempt on a node."""

    run: str
    attempt: int
    at: float
    data: EventData

    @property
    def kind(self) -> str:
        return self.data.kind

    @property
    def key(self) -> AttemptKey:
        return (self.run, self.attempt)


# Deliveries


@dataclass(frozen=True)
class Chunk:
    """Bytes of a stream from `offset` on; `stream` is a path such as `user_logs/std_log.txt`."""

    run: str
    attempt: int
    stream: str
    offset: int
    data: bytes


@wire
class Heartbeat:
    """A sign of life, with the attempts that the node holds."""

    holding: tuple[AttemptKey, ...] = ()
    sample: Mapping[str, float] = field(default_factory=dict)
    """The last measurements of CPU, memory, network and GPUs."""
    doing: tuple[tuple[str, int, str, float], ...] = field(default=(), metadata=OMIT)
    """Run, attempt, the current step of a slow preparation, and since when."""


@dataclass(frozen=True)
class UnreadableEvent:
    """An event whose data does not match its kind; never sent, only received."""

    run: str
    attempt: int
    kind: str
    problem: str


Frame = Event | Chunk | Heartbeat


@wire
class DeliveryAnswer:
    """The answer to `POST agents/NODE/deliveries`."""

    lengths: tuple[tuple[str, int, str, int], ...] = ()
    """Run, attempt, stream, and how many of its bytes are on the server's disk."""
    forget: tuple[AttemptKey, ...] = ()
    """Attempts that are over: the node may remove them."""
    missing: bool = False
    """The server does not know this agent: it must say hello again."""


@wire
class _ChunkHead:
    """The line before the bytes of a chunk."""

    run: str
    attempt: int
    stream: str
    offset: int
    size: int


@wire
class _EventHead:
    """An event without its data."""

    run: str
    attempt: int
    kind: str
    at: float


def encode(frames: Iterable[Frame]) -> Iterator[bytes]:
    """Frames to wire bytes."""
    for frame in frames:
        if isinstance(frame, Event):
            head = {"frame": "event", "run": frame.run, "attempt": frame.attempt, "kind": frame.kind, "at": frame.at}
            yield json.dumps({**head, "data": to_json(frame.data)}).encode() + b"\n"
        elif isinstance(frame, Chunk):
            head = {"frame": "chunk", "run": frame.run, "attempt": frame.attempt, "stream": frame.stream}
            yield json.dumps({**head, "offset": frame.offset, "size": len(frame.data)}).encode() + b"\n"
            yield frame.data
        else:
            yield json.dumps({"frame": "heartbeat", **to_json(frame)}).encode() + b"\n"


def decode(body: BinaryIO) -> Iterator[Frame | UnreadableEvent]:
    """Wire bytes to frames; raises ValueError on anything malformed except the data of an event."""
    while line := body.readline():
        try:
            head = json.loads(line)
        except RecursionError:
            raise WireError("a line is nested too deeply") from None
        kind = head.pop("frame", None) if isinstance(head, dict) else None
        if kind == "chunk":
            chunk = from_json(_ChunkHead, head)
            data = body.read(chunk.size)
            if len(data) != chunk.size:
                raise WireError(f"chunk of {chunk.size} bytes was cut at {len(data)}")
            yield Chunk(chunk.run, chunk.attempt, chunk.stream, chunk.offset, data)
        elif kind == "event":
            data_json = head.pop("data", {})
            event = from_json(_EventHead, head)
            try:
                yield Event(event.run, event.attempt, event.at, _event_data(event.kind, data_json))
            except WireError as error:
                yield UnreadableEvent(event.run, event.attempt, event.kind, str(error))
        elif kind == "heartbeat":
            yield from_json(Heartbeat, head)
        else:
            raise WireError(f"unknown frame {kind!r}")


def _event_data(kind: str, data: object) -> EventData:
    if kind not in _EVENTS:
        raise WireError(f"there is no event {kind!r}")
    try:
        return from_json(_EVENTS[kind], data)
    except WireError as error:
        raise error.below("data").below(kind) from None
