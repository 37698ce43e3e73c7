"""What the agent tells the proxy of an attempt."""

from __future__ import annotations

from dataclasses import field

from muster.wire.message import wire

RANK_PREFIX = "/rank/"
"""Begins the path of a rank's address, which so says who calls."""


@wire
class ProxyRequest:
    """All that a proxy needs to know; comes by standard input, so that no secret shows in a list of processes."""

    listening: int
    """The descriptor of the socket where ranks connect."""
    run: str
    attempt: int
    experiment: str
    secret: str = field(repr=False)
    """What ranks show as their token."""
    servers: tuple[str, ...]
    token: str = field(repr=False)
    """The run's: whoever gets hold of it reaches the run itself, and nothing of the node."""
    pinned_certificate: str | None
    events: str
    """The folder of the ranks' event files."""
    uploads: str
    """The folder of files that are kept with the run."""
