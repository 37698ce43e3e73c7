"""The agent's connection to the server: one per thread, any of several addresses, and when it last answered."""

from __future__ import annotations

import http.client
import logging
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from muster.defaults import TUNNEL_DIAL_S
from muster.errors import MusterError, ServerUnavailable
from muster.host.http import Address, Body, Connection, PerThread
from muster.host.server import ServerConnection
from muster.host.tunnels import dial
from muster.wire.checkpoints import CheckpointFile, Publication
from muster.wire.code import Manifest, SnapshotFiles
from muster.wire.codec import from_neighbour, to_json
from muster.wire.data.access import Access, FileEntry, FileList, HashedFile
from muster.wire.environments import AgreedVersions, BuiltEnvironment
from muster.wire.node.agents import AgentConfig, DeliveryAnswer, Hello, Order, Orders, Welcome
from muster.wire.node.builds import (
    BuildHeard,
    BuildReport,
    CompiledWheel,
    EnvironmentClaim,
    PackedEnvironment,
    WheelClaim,
)
from muster.wire.node.mounts import MountOrders
from muster.wire.node.peers import BlocksAnswer, BlocksRequest, PeerHello, PeerIdentity
from muster.wire.node.requests import (
    EnvironmentReport,
    FreshGrants,
    GrantsRequest,
    HashesReport,
    OutputClaim,
    OutputNames,
    encode_files,
)
from muster.wire.node.tunnels import TunnelRefusal

log = logging.getLogger(__name__)

_FILE_S = 600.0

Trouble = (MusterError, OSError, http.client.HTTPException, ValueError)
"""Everything that a call can raise while the server is away, dying or broken."""


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
        """Whether this is the first failure since the last success, which is worth a line in the log."""
        return self._next_s == self._first_s

    def reset(self) -> None:
        self._next_s = self._first_s


class Arriving:
    """A response body whose read errors are reported as the server's absence, not as local errors."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def read(self, size: int = -1, /) -> bytes:
        try:
            # A negative size would read until the connection ends.
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
        self.met: dict[str, str] = {}
        """What went wrong last at each address."""
        self._contact = time.monotonic()

    @property
    def silence_s(self) -> float:
        """How long ago the server last answered."""
        return time.monotonic() - self._contact

    def hello(self, hello: Hello) -> Welcome:
        return from_neighbour(Welcome, self._call("POST", "/api/v1/agents/hello", json_body=to_json(hello)))

    def orders(self, seen: int, wait_s: float) -> Orders:
        query = {"agent": self._agent_id, "seen": seen, "wait_s": wait_s}
        return from_neighbour(Orders, self._call("GET", self._path("orders"), query=query, timeout_s=wait_s + 30))

    def deliver(self, body: bytes) -> DeliveryAnswer:
        query = {"agent": self._agent_id}
        return from_neighbour(DeliveryAnswer, self._call("POST", self._path("deliveries"), body=body, query=query))

    def put_file(self, order: Order, file: HashedFile, body: Body) -> None:
        """Upload a file that an attempt left."""
        query = {**_attempt(order), "node_rank": order.node_rank, **to_json(file), "agent": self._agent_id}
        self._call("PUT", self._path("files"), body=body, query=query, timeout_s=_FILE_S)

    def put_files(self, order: Order, files: Iterable[tuple[HashedFile, bytes]]) -> None:
        """Upload small files that an attempt left, all in one call."""
        query = {**_attempt(order), "node_rank": order.node_rank, "agent": self._agent_id}
        self._call("POST", self._path("files"), body=b"".join(encode_files(files)), query=query, timeout_s=_FILE_S)

    @contextmanager
    def archive(self, digest: str) -> Iterator[Arriving]:
        """The tar stream of a code snapshot."""
        connection = self._connection()
        with self._watched(), connection.stream("GET", f"/api/v1/snapshots/{digest}/archive") as response:
            yield Arriving(response)

    def manifest(self, order: Order, name: str) -> FileList:
        """The manifest of an input."""
        query = {**_attempt(order), "name": name}
        return from_neighbour(FileList, self._call("GET", self._path("manifest"), query=query, timeout_s=_FILE_S))

    def mounts(self, order: Order) -> MountOrders:
        """What is mounted for an attempt, with fresh credentials."""
        return from_neighbour(
            MountOrders, self._call("GET", self._path("mounts"), query=_attempt(order), timeout_s=_FILE_S)
        )

    def grants(self, order: Order, paths: Mapping[str, Sequence[str]]) -> FreshGrants:
        """Fresh credentials of an attempt, and tokens for files that it is about to write."""
        request = GrantsRequest(order.run, order.attempt, {name: tuple(wanted) for name, wanted in paths.items()})
        return from_neighbour(FreshGrants, self._post("grants", request))

    def hashes(self, order: Order, name: str, files: Iterable[HashedFile]) -> None:
        """Report the hashes that a first download of a data asset found."""
        self._post("hashes", HashesReport(order.run, order.attempt, name, tuple(files)))

    def introduce_peer(self) -> PeerIdentity:
        """The identity with which this node serves blocks to others."""
        return from_neighbour(PeerIdentity, self._post("peer", PeerHello(self._config.address)))

    def blocks(self, request: BlocksRequest) -> BlocksAnswer:
        """Report how far an input is; returns which nodes have which blocks."""
        return from_neighbour(BlocksAnswer, self._post("blocks", request))

    def claim_outputs(self, order: Order, output: str, files: Iterable[HashedFile]) -> OutputNames:
        """Whether the gang succeeded, and the name that each file of an output gets."""
        claim = OutputClaim(order.run, order.attempt, output, tuple(files))
        return from_neighbour(OutputNames, self._post("outputs", claim))

    def agree(self, order: Order, built: BuiltEnvironment | None) -> AgreedVersions:
        """Agree on the versions of a gang's environment; returns what is agreed, if anything."""
        report = EnvironmentReport(order.run, order.attempt, built)
        return from_neighbour(AgreedVersions, self._post("environment", report))

    def report_build(self, report: BuildReport) -> BuildHeard:
        """Report the outcome of an environment that was built ahead of a run."""
        return from_neighbour(BuildHeard, self._post("builds", report))

    def claim_wheel(self, key: str) -> WheelClaim:
        """Whether a compiled wheel exists, or this node should compile it."""
        return from_neighbour(WheelClaim, self._call("POST", self._path(f"wheels/{key}")))

    @contextmanager
    def wheel(self, key: str) -> Iterator[Arriving]:
        connection = self._connection()
        with self._watched(), connection.stream("GET", self._path(f"wheels/{key}"), timeout_s=_FILE_S) as response:
            yield Arriving(response)

    def put_wheel(self, key: str, wheel: CompiledWheel, body: Body) -> None:
        """Upload a wheel that was compiled here, for other nodes."""
        self._call("PUT", self._path(f"wheels/{key}"), body=body, query=to_json(wheel), timeout_s=_FILE_S)

    def release_wheel(self, key: str) -> None:
        """Give the claim back: the wheel is not compiled here after all."""
        self._call("DELETE", self._path(f"wheels/{key}"))

    def claim_environment(self, key: str) -> EnvironmentClaim:
        """Whether other nodes have an environment, or this one should build it."""
        return from_neighbour(EnvironmentClaim, self._call("POST", self._path(f"environments/{key}")))

    def keep_environment(self, key: str, packed: PackedEnvironment) -> None:
        """Report an environment that was built here, for other nodes to fetch."""
        self._call("PUT", self._path(f"environments/{key}"), json_body=to_json(packed))

    def release_environment(self, key: str) -> None:
        """Give the claim back: the environment is not built here any more."""
        self._call("DELETE", self._path(f"environments/{key}"))

    def snapshot(self, digest: str) -> Manifest:
        """The file list of a code snapshot."""
        return from_neighbour(SnapshotFiles, self._call("GET", f"/api/v1/snapshots/{digest}")).files

    def checkpoint_access(self, checkpoint: int, run: str, files: Iterable[CheckpointFile]) -> Access:
        """Access to a checkpoint's files, each below the number of its part."""
        url = f"{self._path(f'checkpoints/{checkpoint}/files')}?run={quote(run, safe='')}"
        entries = tuple(FileEntry(f"{file.part}/{file.path}", file.size, file.sha256) for file in files)
        return Access("muster", url, label=f"checkpoint {checkpoint}", manifest=entries)

    def dial_tunnel(self, tunnel: str) -> socket.socket:
        """This node's end of a tunnel, on a connection of its own; not possible through a shared folder."""
        address = replace(self.reached_at(), token=self._config.token)
        return dial(address, self._path(f"tunnels/{quote(tunnel, safe='')}"), TUNNEL_DIAL_S)

    def refuse_tunnel(self, tunnel: str, message: str, hint: str = "") -> None:
        """Report why this node's end cannot be opened."""
        self._post(f"tunnels/{quote(tunnel, safe='')}/refusal", TunnelRefusal(message, hint))

    def reached_at(self) -> Address:
        """The server's address for child processes, without a token."""
        return Address(self._config.server[self._index], pinned_certificate=self._config.pinned_certificate)

    @property
    def address(self) -> Address:
        """The server's address, with the agent's own token."""
        return Address(self._config.server[self._index], self._config.token, self._config.pinned_certificate)

    @property
    def servers(self) -> tuple[str, ...]:
        """Every address of the server, the one that answered last first."""
        return (*self._config.server[self._index :], *self._config.server[: self._index])

    def put_checkpoint_file(self, order: Order, key: str, file: HashedFile, body: Body) -> None:
        query = {**_attempt(order), "key": key, **to_json(file)}
        self._call("PUT", self._path("checkpoints/files"), body=body, query=query, timeout_s=_FILE_S)

    def publish_checkpoint(self, publication: Publication) -> None:
        self._post("checkpoints", publication)

    def checkpoint(self, checkpoint: int, run: str) -> tuple[CheckpointFile, ...]:
        """The files of a checkpoint."""
        answer = self._call("GET", self._path(f"checkpoints/{checkpoint}"), query={"run": run}, timeout_s=_FILE_S)
        return from_neighbour(tuple[CheckpointFile, ...], answer)

    @contextmanager
    def checkpoint_file(self, checkpoint: int, file: CheckpointFile, run: str) -> Iterator[Arriving]:
        path = self._path(f"checkpoints/{checkpoint}/files/{file.part}/{file.path}")
        connection = self._connection()
        with self._watched(), connection.stream("GET", path, query={"run": run}, timeout_s=_FILE_S) as response:
            yield Arriving(response)

    def _post(self, what: str, message: object) -> Any:
        return self._call("POST", self._path(what), json_body=to_json(message))

    def _call(self, method: str, path: str, **arguments: Any) -> Any:
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
            # Another address may answer; only one thread needs to move on to it.
            if isinstance(error, (ServerUnavailable, OSError)) and index == self._index:
                self.met[Address(self._config.server[index]).shown] = str(error.__cause__ or error)
                self._index = (index + 1) % len(self._config.server)
            raise

    def _connection(self) -> Connection:
        url = self._config.server[self._index]
        return self._connections.to(Address(url, self._config.token, self._config.pinned_certificate))

    def _path(self, what: str) -> str:
        return f"/api/v1/agents/{quote(self._config.node, safe='')}/{what}"


def _attempt(order: Order) -> dict[str, str | int]:
    return {"run": order.run, "attempt": order.attempt}
