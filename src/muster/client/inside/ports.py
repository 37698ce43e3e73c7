"""Parses ports: numbers, and names of a run's services. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster.errors import UserError
from muster.wire.codec import Json
from muster.wire.runs import RunView

_MOST = 65_535


@dataclass(frozen=True)
class Forwarded:
    """A port of a rank, and its local port."""

    remote: int
    local: int | None = None
    """None: the same number, or a free one where that is taken; 0: a free one."""


def parse_ports(text: str, services: Mapping[str, int] | None = None) -> Forwarded:
    """Parse `PORT`, `LOCAL:PORT`, `NAME` or `LOCAL:NAME`."""
    local, _, remote = text.rpartition(":")
    known = services or {}
    if remote in known:
        number = known[remote]
    elif remote.isdigit() and 0 < int(remote) <= _MOST:
        number = int(remote)
    else:
        named = f", or the name of a service: {', '.join(sorted(known))}" if known else ""
        raise UserError(
            f"{text!r} is neither a port nor a service of the run",
            f"Give PORT or LOCAL:PORT, from 1 to {_MOST}{named}.",
        )
    if not local:
        return Forwarded(number)
    if not local.isdigit() or int(local) > _MOST:
        raise UserError(f"{local!r} is not a valid local port", f"Give a number from 0 (a free one) to {_MOST}.")
    return Forwarded(number, int(local))


def services_of(view: RunView) -> dict[str, int]:
    """The ports of a run's services by name, as its job names them under `services`; empty where it has none."""
    return service_ports(view.spec.get("services"))


def service_ports(services: Json) -> dict[str, int]:
    """Ports by name from a job's `services`: a mapping to ports, or to mappings with a `port`."""
    if not isinstance(services, Mapping):
        return {}
    found: dict[str, int] = {}
    for name, value in services.items():
        port = value.get("port") if isinstance(value, Mapping) else value
        if isinstance(port, int) and not isinstance(port, bool) and 0 < port <= _MOST:
            found[name] = port
    return found
