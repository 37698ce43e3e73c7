"""What only the node itself knows: its name, its address, the GPUs that it was given."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from muster.host.network import source_of
from muster.wire.node.agents import AgentConfig

HOST_VARIABLE = "MUSTER_AGENT_HOST"
"""The machine's name as its manager knows it."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def filled_in(config: AgentConfig, environ: Mapping[str, str]) -> AgentConfig:
    """The configuration with what its engine left to the node."""
    address = config.address or own_address(config.server)
    gpus = config.gpus
    if gpus is None and "CUDA_VISIBLE_DEVICES" in environ:
        gpus = visible_gpus(environ["CUDA_VISIBLE_DEVICES"])
    return replace(config, address=address, gpus=gpus)


def host_name(environ: Mapping[str, str]) -> str:
    return environ.get(HOST_VARIABLE) or socket.gethostname()


def machine() -> str:
    """An id of the machine: the same for agents on one machine that see the same host name."""
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:
        return ""
    return f"{boot}/{socket.gethostname()}"


def visible_gpus(text: str) -> tuple[str, ...]:
    """The ids in CUDA_VISIBLE_DEVICES, up to the first invalid one."""
    found = []
    for part in (item.strip() for item in text.split(",")):
        if not part or part == "-1" or part == "NoDevFiles":
            break
        found.append(part)
    return tuple(found)


def own_address(servers: tuple[str, ...]) -> str:
    """The address from which this machine reaches the server; as a fallback that of its host name."""
    for url in servers:
        parts = urlsplit(url)
        if parts.scheme == "https" and parts.hostname:
            try:
                return source_of(parts.hostname, parts.port or 443)
            except OSError:
                continue
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
