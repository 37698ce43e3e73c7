"""A server's parts in this process: a database in a folder, an engine that only offers nodes, no loops, no sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import insert
from starlette.types import ASGIApp

from muster.engines.registry import Engines
from muster.paths import WorkspacePaths
from muster.server.context import Context
from muster.server.data.state import WorkspaceFiles
from muster.server.database import tables
from muster.server.database.connection import Database, Transaction
from muster.server.http.app import make_app
from muster.server.hub import Hub
from muster.server.nodes.state import NodesState
from muster.server.people.access import Tokens
from muster.server.people.vault import Vault
from muster.store.backend import Store
from muster.store.snapshots import Snapshots
from muster.store.streams import Streams

T = TypeVar("T")


@dataclass
class Server:
    """What a test asks of a server."""

    context: Context
    app: ASGIApp
    runner: asyncio.Runner

    def write(self, work: Callable[[Transaction], T]) -> T:
        return self.context.database.submit(work).result()

    def add_cluster(self, name: str, **options: Any) -> None:
        row = {"name": name, "engine": "fake", "state": "ready", "created_at": 0.0}
        row["options"] = {"folder": str(self.context.paths.root), **options}
        self.write(lambda transaction: transaction.execute(insert(tables.clusters).values(**row)))

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """One request by the owner; returns the status and what its JSON says."""
        return self.runner.run(self._call(method, f"/api/v1{path}", b"" if body is None else json.dumps(body).encode()))

    async def _call(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        token = self.context.tokens.admin(self.context.paths.admin_token)
        headers = [(b"authorization", f"Bearer {token}".encode()), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers}
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        text = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], json.loads(text) if text else None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    paths = WorkspacePaths(tmp_path / ".muster")
    paths.server_dir.mkdir(parents=True)
    store = Store(str(paths.store))
    with asyncio.Runner() as runner:
        database = Database(f"sqlite:///{paths.database}")
        context = Context(
            workspace_id="w",
            paths=paths,
            database=database,
            hub=runner.run(_hub()),
            files=WorkspaceFiles(store, Snapshots(store), Streams(paths.store / "runs")),
            tokens=Tokens(database),
            vault=Vault(b"k" * 32),
            nodes=NodesState(Engines({"fake": "muster.testing.engine:FakeEngine"}), ()),
        )
        found = Server(context, make_app(context, lambda **_: None), runner)
        found.add_cluster("two", max_nodes=2, gpus=2)
        yield found
        database.close()


async def _hub() -> Hub:
    return Hub()
