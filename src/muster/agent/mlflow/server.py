"""Forwards calls to the workspace's server, with the run's token and the events that the server must have first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path

from muster.agent.mlflow.messages import ProxyRequest
from muster.errors import ServerUnavailable
from muster.host.http import Address, Body
from muster.host.server import ServerConnection
from muster.wire.tracking import ATTEMPT_HEADER, EVENTS_HEADER, RUN_HEADER

_ANSWER_S = 60.0
_KEPT = ("content-type", "range", "content-length", "muster-grant")


class Forwarder:
    """Forwards calls to whichever address the server answers at; each call has its own connection."""

    def __init__(self, request: ProxyRequest) -> None:
        self._request = request
        self._index = 0

    @contextmanager
    def send(
        self, method: str, target: str, rank: int, headers: dict[str, str], body: Body = None
    ) -> Iterator[HTTPResponse]:
        """The answer to a call, once the server has the rank's earlier events; ServerUnavailable if none comes."""
        request, index = self._request, self._index
        address = Address(request.servers[index], request.token, request.pinned_certificate)
        connection = ServerConnection(address, _ANSWER_S)
        kept = {name: value for name, value in headers.items() if name.lower() in _KEPT}
        own = {RUN_HEADER: request.run, ATTEMPT_HEADER: str(request.attempt), EVENTS_HEADER: self._written(rank)}
        try:
            with connection.exchange(method, target, headers={**kept, **own}, body=body) as response:
                yield response
        except ServerUnavailable:
            self._index = (index + 1) % len(request.servers)
            raise
        finally:
            connection.close()

    def _written(self, rank: int) -> str:
        """The rank's event file and how many bytes it has, for the header."""
        name = f"rank_{rank}.jsonl"
        try:
            return f"events/{name}={os.path.getsize(Path(self._request.events) / name)}"  # noqa: PTH202
        except OSError:
            return ""
