"""What the engine, its bridge, the broker and the nodes of a Ray cluster send each other. Standard library only.

It is sent as JSON: a node with another version of Muster must understand enough to report that.
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
"""The prefix of the names of placement groups."""


@wire
class About:
    """The versions inside the Ray cluster."""

    muster: str
    ray: str
    python: str
    dashboard: str = field(default="", metadata=OMIT)
    """The address of Ray's own dashboard, according to its head; empty: there is none."""


@wire
class BridgeMessage:
    """Messages of the bridge: first whether it is attached, then answers."""

    attached: About | None = field(default=None, metadata=OMIT)
    failed: str | None = field(default=None, metadata=OMIT)
    kind: str = field(default="", metadata=OMIT)
    """The class of the error with which it failed to attach."""
    id: int = field(default=0, metadata=OMIT)
    answer: Json = field(default=None, metadata=OMIT)
    error: str | None = field(default=None, metadata=OMIT)


@wire
class Site:
    """Facts for the nodes of a gang in addition to its agents' configurations."""

    owner: str = ""
    """A cluster of a workspace; empty: requested before the broker was restarted."""
    folder: str = ""
    cut_off_s: float = 0.0


@wire
class GangOrder:
    """A gang that is requested from the broker."""

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
    """The address of Ray's head."""


GangState = Literal["pending", "starting", "up", "failed", "lost"]


@wire
class GangReport:
    """The state of a gang, as the broker sees it."""

    state: GangState
    reason: str
    hosts: tuple[str, ...]
    lost: tuple[int, ...]
    """Ranks of nodes that Ray no longer has."""
    draining: tuple[int, ...]
    """Ranks of nodes that Ray is reclaiming."""
    living: int
    """Nodes in the cluster."""
    unreached: Mapping[str, ServerContact] = field(default_factory=dict, metadata=OMIT)
    """Errors of agents that are alive and cannot reach the server, by node."""
    recovered: bool = field(default=False, metadata=OMIT)
    """Its group was requested before the broker was restarted, which knows nothing of its agents."""
