"""The agent's way to the server: one connection per thread, any of several addresses, and when it last answered."""

from __future__ import annotations

import http.client
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast
from urllib.parse import quote

from muster.errors import MusterError, ServerUnavailable
from muster.host.http import Address, Body, Connection, PerThread
from muster.host.server import ServerConnection
from muster.protocol import AgentConfig, Order
from muster.wire.access import FileList, HashedFile
from muster.wire.codec import from_json, to_json
from muster.wire.node.requests import FreshGrants, GrantsRequest, HashesReport, OutputClaim, OutputNames

log = logging.getLogger(__name__)

Trouble = (MusterError, OSError, http.client.HTTPException, ValueError)
"""Everything that a call to a server that is away, dying or confused can raise."""


class Backoff:
    """Waits that grow while the server is away."""

    def __init__(self, first_s: float = 0.05, most_s: float = 1.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s

    def next_s(self) -> float:
        wait_s = self._next_s
        self._next_s = min(self._next_s * 2, self._most_s)
        return wait_s

    @property
    def fresh(self) -> bool:
        """Nothing has failed since the last success: worth a line in the log."""
        return self._next_s == self._first_s

    def reset(self) -> None:
        self._next_s = self._first_s


class Arriving:
    """A body whose reading fails as the server's absence, so that it is not taken for a local error."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def read(self, size: int = -1, /) -> bytes:
        try:
            # A negative size would wait for the end of the connection.
            return self._response.read(None if size < 0 else size)
        except (OSError, http.client.HTTPException) as error:
            raise ServerUnavailable(f"the server went away: {error!r}") from error


class Link:
    """Calls to the server, from any thread."""

    def __init__(self, config: AgentConfig, agent_id: str) -> None:
        self._config = config
        self._agent_id = agent_id
        self._index = 0
        self._connections = PerThread(ServerConnection)
        self._contact = time.monotonic()

    @property
    def silence_s(self) -> float:
        """How long ago the server answered last."""
        return time.monotonic() - self._contact

    def hello(self, facts: dict[str, Any]) -> None:
        self.call("POST", "/api/v1/agents/hello", json_body=facts)

    def orders(self, seen: int, wait_s: float) -> dict[str, Any]:
        query = {"agent": self._agent_id, "seen": seen, "wait_s": wait_s}
        answer = self.call("GET", self._path("orders"), query=query, timeout_s=wait_s + 30)
        return cast(dict[str, Any], answer)

    def deliver(self, body: bytes) -> dict[str, Any]:
        headers = {"Content-Type": "application/octet-stream"}
        answer = self.call(
            "POST", self._path("deliveries"), body=body, query={"agent": self._agent_id}, headers=headers
        )
        return cast(dict[str, Any], answer or {})

    def put_file(self, body: Body, query: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/octet-stream"}
        query = {**query, "agent": self._agent_id}
        self.call("PUT", self._path("files"), body=body, query=query, headers=headers, timeout_s=600)

    @contextmanager
    def archive(self, digest: str) -> Iterator[Arriving]:
        """The tar stream of a code snapshot."""
        connection = self._connection()
        with self._watched(), connection.stream("GET", f"/api/v1/snapshots/{digest}/archive") as response:
            yield Arriving(response)

    def manifest(self, order: Order, name: str) -> FileList:
        """What an input holds."""
        query = {"run": order.run, "attempt": order.attempt, "name": name}
        return from_json(FileList, self.call("GET", self._path("manifest"), query=query, timeout_s=600))

    def grants(self, order: Order, paths: Mapping[str, Sequence[str]]) -> FreshGrants:
        """Fresh accesses of an attempt, and tokens for files that it is about to write."""
        request = GrantsRequest(order.run, order.attempt, {name: tuple(wanted) for name, wanted in paths.items()})
        return from_json(FreshGrants, self._post("grants", request))

    def hashes(self, order: Order, name: str, files: Iterable[HashedFile]) -> None:
        """What a first download of a data asset found."""
        self._post("hashes", HashesReport(order.run, order.attempt, name, tuple(files)))

    def claim_outputs(self, order: Order, output: str, files: Iterable[HashedFile]) -> OutputNames:
        """Whether the gang succeeded, and the name that each file of an output gets."""
        claim = OutputClaim(order.run, order.attempt, output, tuple(files))
        return from_json(OutputNames, self._post("outputs", claim))

    def agree(self, order: Order, facts: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Settle the versions of a gang's environment, where facts are given; what is settled, if anything."""
        body = {"run": order.run, "attempt": order.attempt, "environment": facts}
        return cast(Mapping[str, Any], self.call("POST", self._path("environment"), json_body=body))

    def reached_at(self) -> Address:
        """How a child process reaches the server, without a token."""
        return Address(self._config.server[self._index], pinned_certificate=self._config.pinned_certificate)

    def put_checkpoint_file(self, body: Body, query: dict[str, Any]) -> None:
        headers = {"Content-Type": "application/octet-stream"}
        self.call("PUT", self._path("checkpoints/files"), body=body, query=query, headers=headers, timeout_s=600)

    def publish_checkpoint(self, publication: dict[str, Any]) -> None:
        self.call("POST", self._path("checkpoints"), json_body=publication)

    def checkpoint(self, checkpoint: int, run: str) -> list[dict[str, Any]]:
        """The files of a checkpoint."""
        with self._fetch(f"checkpoints/{checkpoint}", {"run": run}) as answer:
            return cast(list[dict[str, Any]], json.loads(answer.read()))

    def checkpoint_file(self, checkpoint: int, part: int, path: str, run: str) -> AbstractContextManager[Arriving]:
        return self._fetch(f"checkpoints/{checkpoint}/files/{part}/{path}", {"run": run})

    @contextmanager
    def _fetch(self, what: str, query: dict[str, Any]) -> Iterator[Arriving]:
        connection = self._connection()
        with self._watched(), connection.stream("GET", self._path(what), query=query, timeout_s=600) as response:
            yield Arriving(response)

    def _post(self, what: str, message: object) -> Any:
        return self.call("POST", self._path(what), json_body=to_json(message))

    def call(self, method: str, path: str, **arguments: Any) -> Any:
        connection = self._connection()
        with self._watched():
            answer = connection.request(method, path, **arguments)
        self._contact = time.monotonic()
        return answer

    def close(self) -> None:
        """Close the calling thread's connection."""
        self._connections.close()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        index = self._index
        try:
            yield
        except BaseException as error:
            self.close()
            # Another address may answer; only one thread needs to turn the page.
            if isinstance(error, (ServerUnavailable, OSError)) and index == self._index:
                self._index = (index + 1) % len(self._config.server)
            raise

    def _connection(self) -> Connection:
        url = self._config.server[self._index]
        return self._connections.to(Address(url, self._config.token, self._config.pinned_certificate))

    def _path(self, what: str) -> str:
        return f"/api/v1/agents/{quote(self._config.node, safe='')}/{what}"
