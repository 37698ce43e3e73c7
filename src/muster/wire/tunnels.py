"""Tunnels into nodes: a person's requests, and the server's answers. What goes through one: `host.frames`."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from muster.wire.codec import OMIT
from muster.wire.message import check_range, wire

TunnelKind = Literal["shell", "stacks", "port"]

NOT_STARTED_YET = "not_started_yet"
"""The code of a refusal that no longer applies once the run has started."""

_ARGUMENTS = 1000
_ARGUMENT_BYTES = 32_000
_PORTS = 65_535


@wire
class Terminal:
    """The terminal of whoever opens a shell."""

    rows: int
    columns: int
    type: str = "xterm"

    def __post_init__(self) -> None:
        check_range("rows", self.rows, 0, _PORTS)
        check_range("columns", self.columns, 0, _PORTS)
        check_range("the length of type", len(self.type), 0, 64)


@wire
class TunnelTarget:
    """Where a tunnel leads."""

    kind: TunnelKind
    rank: int | None = None
    """The rank whose environment, port or stack is used; None: rank 0, for stacks every rank of the node."""
    command: tuple[str, ...] = ()
    """For a shell: the command to run; empty: an interactive shell."""
    terminal: Terminal | None = field(default=None, metadata=OMIT)
    """For a shell: its terminal; None: no terminal, input, output and errors are separate streams."""
    port: int = 0

    def __post_init__(self) -> None:
        check_range("rank", self.rank or 0, 0)
        check_range("the number of arguments", len(self.command), 0, _ARGUMENTS)
        check_range("the size of the command", sum(map(len, self.command)), 0, _ARGUMENT_BYTES)
        if any("\0" in text for text in self.command):
            raise ValueError("the command holds a zero byte")
        if self.kind == "port":
            check_range("port", self.port, 1, _PORTS)


@wire
class NewTunnel:
    """The body of `POST runs/RUN/tunnels`."""

    target: TunnelTarget
    node_rank: int | None = None
    """The node, where it is not that of the rank."""


@wire
class TunnelView:
    """A tunnel that waits for both its ends: `POST tunnels/ID` with an upgrade is the person's."""

    id: str
    run: str
    attempt: int
    node: str
    node_rank: int
    num_nodes: int


@wire
class StackFrame:
    """One call of a stack."""

    function: str
    file: str
    line: int


@wire
class ThreadStack:
    """The stack of a thread: the innermost call first."""

    name: str
    frames: tuple[StackFrame, ...]


@wire
class ProcessStacks:
    """The stacks of one Python process of a rank."""

    rank: int
    pid: int
    command: str
    threads: tuple[ThreadStack, ...] = ()
    """The main thread first."""
    trouble: str = ""
    """Why its stacks are not known."""


@wire
class StacksReport:
    """The answer of a tunnel to the stacks of a node."""

    processes: tuple[ProcessStacks, ...]
    how: str = ""
    """`py-spy` or `faulthandler`."""
    notices: tuple[str, ...] = ()
