"""Where requests go: deployments with their shares of the traffic, their replicas, and credentials. Pure."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass, field, fields
from typing import Any, Container, Dict, Mapping, Optional, Sequence, Tuple

PIN = "azureml-model-deployment"
"""The header that names the deployment that should answer."""
TOKEN_PREFIX = "muster_endpoint_"


@dataclass(frozen=True)
class Backend:
    """One replica."""

    run: str
    address: str
    port: int
    ready: bool
    key: str
    gone: bool = False
    """Its node is lost, or its run is between two attempts: nobody answers there now."""

    @property
    def url(self) -> str:
        return "http://{}:{}".format(self.address, self.port)


@dataclass(frozen=True)
class Route:
    """One deployment."""

    name: str
    weight: int
    mirror: int
    timeout_ms: float
    concurrency: int
    """Requests that one replica gets at the same time."""
    queue_wait_ms: float
    idempotent: bool
    backends: Tuple[Backend, ...]
    sleeps: bool = False
    """Without requests it has no replicas; the next request starts one."""

    @property
    def most_open(self) -> int:
        """Requests that may be running or waiting: twice as many as the replicas take at once."""
        return 2 * self.concurrency * max(1, len(self.backends))


@dataclass(frozen=True)
class Table:
    """Everything that the front door knows."""

    version: int
    endpoint: str
    host: str
    port: int
    """Where it listened before; 0: nowhere yet."""
    keys: Tuple[str, ...]
    token_key: str
    """The key that signs tokens; empty where keys open the endpoint."""
    deployments: Tuple[Route, ...]
    public: bool = False
    """The endpoint's author chose the address: it answers there from anywhere."""
    certificate: str = ""
    """Empty: plain HTTP."""
    private_key: str = field(default="", repr=False)


def parse(given: Mapping[str, Any]) -> Table:
    """The table as the server sent it; unknown fields, from a newer version, are left out."""
    deployments = tuple(
        Route(**{**_known(Route, route), "backends": tuple(Backend(**_known(Backend, it)) for it in route["backends"])})
        for route in given["deployments"]
    )
    return Table(**{**_known(Table, given), "keys": tuple(given["keys"]), "deployments": deployments})


def _known(kind: Any, given: Mapping[str, Any]) -> Dict[str, Any]:
    names = {item.name for item in fields(kind)}
    return {name: value for name, value in given.items() if name in names}


@dataclass(frozen=True)
class Told:
    """A message to a process that answers at an endpoint's address."""

    accepts: bool
    """Whether it should take connections."""
    table: Table


def telling(accepts: bool, text: bytes) -> bytes:
    """The message as a line; `text` is the table as the server sent it."""
    return b'{"accepts": %s, "table": %s}\n' % (b"true" if accepts else b"false", text)


def told(line: bytes) -> Told:
    """The message of a line."""
    given = json.loads(line)
    return Told(bool(given["accepts"]), parse(given["table"]))


def sole_replica(table: Table) -> Optional[Backend]:
    """The replica that may take requests at the endpoint's own address: the only one of the only deployment.

    None where requests may be repeated: that needs a process that keeps them and outlives the replica.
    """
    if len(table.deployments) != 1:
        return None
    route = table.deployments[0]
    if route.idempotent or not route.weight or len(route.backends) != 1 or not route.backends[0].ready:
        return None
    return route.backends[0]


def chosen(table: Table, pinned: Optional[str], drawn: float) -> Optional[Route]:
    """The deployment that answers: the one that the request names, or one by its share; `drawn` is from [0, 1)."""
    if pinned:
        return next((route for route in table.deployments if route.name == pinned), None)
    total = sum(route.weight for route in table.deployments)
    left = drawn * total
    for route in table.deployments:
        if left < route.weight:
            return route
        left -= route.weight
    return None


def mirrored(table: Table, route: Route, drawn: float) -> Optional[Route]:
    """The deployment that gets a copy of a request that another one answers."""
    for other in table.deployments:
        if other.mirror and other.name != route.name and drawn * 100 < other.mirror:
            return other
    return None


def admits(table: Table, authorization: str, now: float) -> bool:
    """Whether a request's credentials open the endpoint: one of its keys, or a token that has not expired."""
    kind, _, shown = authorization.partition(" ")
    if kind.lower() != "bearer" or not shown:
        return False
    if table.token_key:
        return _is_token(table, shown.strip(), now)
    return any(hmac.compare_digest(shown.strip().encode(), key.encode()) for key in table.keys)


def token_for(endpoint: str, token_key: str, expires_at: int) -> str:
    """A token that opens an endpoint until this time; the server makes the same."""
    signed = hmac.new(token_key.encode(), "{}/{}".format(endpoint, expires_at).encode(), hashlib.sha256).hexdigest()
    return "{}{}.{}".format(TOKEN_PREFIX, expires_at, signed)


def _is_token(table: Table, shown: str, now: float) -> bool:
    expires, _, _ = shown[len(TOKEN_PREFIX) :].partition(".")
    if not shown.startswith(TOKEN_PREFIX) or not expires.isdecimal() or len(expires) > 12:
        return False
    made = token_for(table.endpoint, table.token_key, int(expires))
    return hmac.compare_digest(shown.encode(), made.encode()) and int(expires) > now


def least_busy(
    backends: Sequence[Backend], open_on: Mapping[str, int], most: int, doubted: Container[str] = ()
) -> Optional[Backend]:
    """The replica that gets the next request; None while each has as many as it takes.

    One that is restarting is asked only if there is no other: its listener keeps what comes meanwhile.
    One that could not be reached a moment ago (`doubted`) is asked only if that is true of all that are ready.
    """
    ready = [backend for backend in backends if backend.ready and not backend.gone]
    if doubted:
        ready = [backend for backend in ready if backend.url not in doubted] or ready
    there = ready or [backend for backend in backends if not backend.gone]
    return min(
        (backend for backend in there if open_on.get(backend.url, 0) < most),
        key=lambda backend: open_on.get(backend.url, 0),
        default=None,
    )
