"""What the broker has done on a node, in one of Ray's workers: start an agent, see whether it lives, end it.

Standard library only, so that a worker that did it stays small.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from muster.engines.agents import contact_of, has_undelivered, last_words
from muster.engines.ray import leash
from muster.engines.ray.leash import LeashSettings
from muster.engines.ray.messages import AgentOrder, Site
from muster.host.files import PRIVATE, write_json
from muster.paths import NodePaths
from muster.version import VERSION
from muster.wire.codec import Json, from_json, to_json

_START_S = 60.0
_LEAVE_S = 10.0
_LOOK_S = 0.02


def start_agent(version: str, asked: Json, gpus: Sequence[str]) -> str:
    """Start the agent of a node, unless it is alive; returns why it did not stay, empty where it did."""
    if version != VERSION:
        return f"it has Muster {VERSION}, the server {version}: install muster-ml=={version} there"
    order = from_json(AgentOrder, asked)
    root = _folder(order.site) / order.config.node
    paths = NodePaths(root)
    if _somebody_there(root):
        return ""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(paths.config, to_json(replace(order.config, root=str(root))), mode=PRIVATE)
    addresses = (order.head, *(url for url in order.config.server if url.startswith("https://")))
    environment = _environment() | {"MUSTER_AGENT_HOST": order.host, "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    leash.start(root, LeashSettings(os.getppid(), addresses, order.site.cut_off_s), environment)
    _collect(root, environment)
    deadline = time.monotonic() + _START_S
    while not paths.agent_lives():
        if paths.log.exists() and not leash.leash_lives(root):
            return last_words(paths) or "its agent did not stay"
        if time.monotonic() > deadline:
            return f"its agent did not start within {_START_S:g} s"
        time.sleep(_LOOK_S)
    return ""


def agent_is_there(node: str, site: Json) -> bool:
    return _somebody_there(_folder(from_json(Site, site)) / node)


def contact(node: str, site: Json) -> Json:
    """The contact of a node's agent with the server (a ServerContact); None where it has not recorded any."""
    said = contact_of(NodePaths(_folder(from_json(Site, site)) / node))
    found: Json = to_json(said) if said is not None else None
    return found


def end_agent(node: str, site: Json, patience_s: float = _LEAVE_S) -> None:
    """Wait for an agent to leave by itself; one that stays is asked to go."""
    root = _folder(from_json(Site, site)) / node
    deadline = time.monotonic() + patience_s
    while leash.leash_lives(root) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    if leash.leash_lives(root):
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((root / leash.PID).read_text()), signal.SIGTERM)


def _somebody_there(root: Path) -> bool:
    return leash.leash_lives(root) or NodePaths(root).agent_lives()


def _collect(mine: Path, environment: Mapping[str, str]) -> None:
    """Deliver what earlier agents of this machine left because their server was away for too long."""
    for root in mine.parent.iterdir():
        left = root != mine and (root / leash.FILE).exists() and has_undelivered(NodePaths(root))
        if left and not _somebody_there(root):
            leash.start(root, replace(leash.read_settings(root), raylet=os.getppid()), environment)


def _folder(site: Site) -> Path:
    return Path(site.folder).expanduser()


def _environment() -> dict[str, str]:
    """The environment with which this node's Ray was started; Ray gives its workers more, which ranks would misread."""
    try:
        raw = Path(f"/proc/{os.getppid()}/environ").read_bytes().decode(errors="surrogateescape")
        found = dict(item.split("=", 1) for item in raw.split("\0") if "=" in item)
    except OSError:
        found = dict(os.environ)
    return {name: value for name, value in found.items() if not name.startswith(("RAY_", "GRPC_ENABLE_FORK"))}
