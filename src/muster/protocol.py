"""What agents and the server say to each other. Standard library only.

An agent sends *deliveries*: a sequence of frames, each one JSON line, followed by `size` raw bytes
where the line has a `size`. Frames are applied in order, and each can be sent again without harm:
a chunk is addressed by (run, attempt, stream, offset); an event by what it says.

The server answers with how much of each stream it has, and lists its *orders*: for every attempt that
concerns the node, the state that is wanted. Orders are levels, not edges, so a lost answer costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from muster.defaults import PROTOCOL_VERSION
from muster.wire.codec import from_json, to_json
from muster.wire.node.agents import InputOrder, OutputOrder

VERSION_HEADER = "Muster-Protocol"

Action = str  # "prepare" | "go" | "stop" | "forget"


@dataclass(frozen=True)
class AgentConfig:
    """Written by an engine to a 0600 file; `muster-agent CONFIG` is the whole command line."""

    node: str
    cluster: str
    root: str
    """The node's folder (NodePaths)."""
    server: tuple[str, ...]
    """Addresses to try: `unix:/path`, `https://host:port`, or `file:/path` of a shared folder."""
    token: str
    address: str = "127.0.0.1"
    """Where other nodes reach this one; empty: the agent finds out."""
    gpus: tuple[str, ...] | None = None
    """GPUs that the node may offer; None: all that are found."""
    pinned_certificate: str | None = None
    """PEM text that the server must present."""
    setup: str | None = None
    """A command that the node runs once before its first job."""
    stale_after_s: float = 3600.0
    long_lived: bool = True
    """Stays when it has nothing to do; otherwise it ends after its last attempt is forgotten."""
    linger_s: float | None = None
    """How long it keeps its node for a server that is away once nothing runs there; None: as long as it takes."""


@dataclass(frozen=True)
class Order:
    """What is wanted of one attempt on one node.

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
    plan: Mapping[str, Any] | None = None
    """A NodePlan as JSON."""
    timeout_s: float | None = None
    grace_s: float = 30.0
    stop_reason: str = ""
    """rank_failed | cancelled | killed | timeout | node_lost | preempted | superseded | done"""
    resume: tuple[int, ...] = ()
    """Checkpoints to resume from, the newest first; a damaged one is passed over."""
    log_limit_bytes: int = 10 << 30
    output_orders: tuple[OutputOrder, ...] = ()
    """How each of `outputs` is written and where it goes."""
    masked: tuple[str, ...] = ()
    """Secret values that must not appear in what the ranks print."""
    needs: Mapping[str, Any] | None = None
    """A launch.model.Needs as JSON: what the node is looked at for before ranks start."""
    environment: Mapping[str, Any] | None = None
    """An environments.recipe.Recipe as JSON, built on `python`; None: ranks run in `python` as it is."""
    mpi: bool = False
    """The ranks are started by an mpirun, which is looked for before they start."""
    secret: str = ""
    """Known to the nodes of this attempt alone; opens the way from its mpirun to them."""
    container: Mapping[str, Any] | None = None
    """A containers.model.Container as JSON: the image that the ranks run in."""

    @property
    def key(self) -> tuple[str, int]:
        return (self.run, self.attempt)


def order_to_json(order: Order) -> dict[str, Any]:
    return {
        **vars(order),
        "inputs": to_json(order.inputs),
        "output_orders": to_json(order.output_orders),
    }


def order_from_json(data: Mapping[str, Any]) -> Order:
    fields = dict(data)
    fields["ports_avoid"] = tuple(fields.get("ports_avoid", ()))
    fields["resume"] = tuple(fields.get("resume", ()))
    fields["outputs"] = tuple(fields.get("outputs", ()))
    fields["inputs"] = from_json(tuple[InputOrder, ...], fields.get("inputs", ()))
    fields["output_orders"] = from_json(tuple[OutputOrder, ...], fields.get("output_orders", ()))
    fields["masked"] = tuple(fields.get("masked", ()))
    return Order(**fields)


@dataclass(frozen=True)
class Event:
    """Something that happened on a node; `data` depends on `kind`.

    prepared  ports: [int], address: str, resumed: int | None (the checkpoint that was put in place),
              facts: {notices: [str], versions: {module: str}, devices: launch.devices.Devices as JSON,
              machine: str (the same for agents on one machine with one host name)}
    refused   code: str, message: str         it could not be prepared or started
    started   ranks: [{rank, pid, at}]
    exited    rank, exit_code | signal, at, max_rss_kb, core_dumped, expected (ended by Muster's own signal)
    timed_out                                  the attempt's time limit has passed; ranks are being stopped
    leaving                                    the agent was told to go; ranks are being stopped
    ended     at, reason                       no process of the attempt is left on the node
    delivered files: [{path, sha256, size}]    every byte and file is with the server
    """

    run: str
    attempt: int
    kind: str
    at: float
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Chunk:
    """Bytes of a stream from `offset` on; `stream` is a path such as `user_logs/std_log.txt`."""

    run: str
    attempt: int
    stream: str
    offset: int
    data: bytes


def encode(frames: Iterable[Event | Chunk | Mapping[str, Any]]) -> Iterator[bytes]:
    """Frames to wire bytes; a mapping is sent as it is (the heartbeat)."""
    for frame in frames:
        if isinstance(frame, Chunk):
            head = {
                "frame": "chunk",
                "run": frame.run,
                "attempt": frame.attempt,
                "stream": frame.stream,
                "offset": frame.offset,
                "size": len(frame.data),
            }
            yield json.dumps(head).encode() + b"\n"
            yield frame.data
        elif isinstance(frame, Event):
            # Not asdict: it copies everything below, and there are many events.
            yield json.dumps({"frame": "event", **vars(frame)}).encode() + b"\n"
        else:
            yield json.dumps({"frame": "heartbeat", **frame}).encode() + b"\n"


def decode(body: BinaryIO) -> Iterator[Event | Chunk | dict[str, Any]]:
    """Wire bytes to frames; raises ValueError on anything malformed."""
    while line := body.readline():
        head = json.loads(line)
        kind = head.pop("frame", None)
        if kind == "chunk":
            size = head.pop("size")
            data = body.read(size)
            if len(data) != size:
                raise ValueError(f"chunk of {size} bytes was cut at {len(data)}")
            yield Chunk(data=data, **head)
        elif kind == "event":
            yield Event(**head)
        elif kind == "heartbeat":
            yield head
        else:
            raise ValueError(f"unknown frame {kind!r}")


__all__ = [
    "PROTOCOL_VERSION",
    "VERSION_HEADER",
    "AgentConfig",
    "Chunk",
    "Event",
    "InputOrder",
    "Order",
    "OutputOrder",
    "decode",
    "encode",
    "order_from_json",
    "order_to_json",
]
