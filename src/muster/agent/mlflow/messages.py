"""The message from the agent to the proxy of an attempt."""

from __future__ import annotations

from dataclasses import field

from muster.wire.message import wire

RANK_PREFIX = "/rank/"
"""The beginning of the path in a rank's address, by which the proxy knows the rank."""


@wire
class ProxyRequest:
    """Everything that a proxy needs; sent to its standard input, so that no secret shows in a list of processes."""

    listening: int
    """The descriptor of the socket that ranks connect to."""
    run: str
    attempt: int
    experiment: str
    secret: str = field(repr=False)
    """The token that ranks must send."""
    servers: tuple[str, ...]
    token: str = field(repr=False)
    """The run's token: it gives access to the run, and to nothing else of the node."""
    pinned_certificate: str | None
    events: str
    """The folder of the ranks' event files."""
    uploads: str
    """The folder of files that are stored with the run."""
