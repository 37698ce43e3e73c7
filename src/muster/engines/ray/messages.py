"""What the engine, its bridge, the broker and the nodes of a Ray cluster say to each other. Standard library only.

Between processes it travels as JSON: a node with another Muster must understand enough to say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from muster.wire.codec import OMIT, Json
from muster.wire.message import wire
from muster.wire.node.agents import AgentConfig, ServerContact


@wire
class Call:
    """The engine asks the bridge to call a method of the broker."""

    id: int
    call: str
    arguments: Mapping[str, Json]


GROUP_PREFIX = "muster:"
"""Of the names of placement groups."""


@wire
class About:
    """The versions inside the Ray cluster."""

    muster: str
    ray: str
    python: str
    dashboard: str = field(default="", metadata=OMIT)
    """Where Ray's own dashboard is, as its head knows it; empty: there is none."""


@wire
class BridgeMessage:
    """What the bridge says: first whether it is attached, then answers."""

    attached: About | None = field(default=None, metadata=OMIT)
    failed: str | None = field(default=None, metadata=OMIT)
    kind: str = field(default="", metadata=OMIT)
    """The class of the error with which it failed to attach."""
    id: int = field(default=0, metadata=OMIT)
    answer: Json = field(default=None, metadata=OMIT)
    error: str | None = field(default=None, metadata=OMIT)


@wire
class Site:
    """What the nodes of a gang need to know in addition to its agents' configurations."""

    owner: str = ""
    """A cluster of a workspace; empty: asked for before the broker was restarted."""
    folder: str = ""
    cut_off_s: float = 0.0


@wire
class GangOrder:
    """A gang that the broker is asked for."""

    bundles: tuple[Mapping[str, float], ...]
    selectors: tuple[Mapping[str, str], ...]
    agents: tuple[AgentConfig, ...]
    site: Site


@wire
class AgentOrder:
    """An agent that a node starts."""

    config: AgentConfig
    site: Site
    host: str
    """The node's name in the Ray cluster."""
    head: str
    """Where Ray's head listens."""


GangState = Literal["pending", "starting", "up", "failed", "lost"]


@wire
class GangReport:
    """What has become of a gang, as the broker sees it."""

    state: GangState
    reason: str
    hosts: tuple[str, ...]
    lost: tuple[int, ...]
    """Ranks of nodes that Ray no longer has."""
    draining: tuple[int, ...]
    """Ranks of nodes that Ray takes back."""
    living: int
    """Nodes in the cluster."""
    unreached: Mapping[str, ServerContact] = field(default_factory=dict, metadata=OMIT)
    """What agents met that live and cannot reach the server, by node."""
    recovered: bool = field(default=False, metadata=OMIT)
    """Its group was asked for before the broker was restarted, which knows nothing of its agents."""
