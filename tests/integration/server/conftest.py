"""A workspace with its client, and ways to look at what runs in it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.conftest import process, wait_until

from muster.client.api import Client
from muster.client.connect import connect
from muster.client.submit import submit
from muster.client.workspace import find_workspace
from muster.errors import NotFound
from muster.job.explain import make_spec
from muster.wire.codec import to_json

ENDED = {"Completed", "Failed", "Canceled"}


@dataclass
class Site:
    """One workspace under test."""

    folder: Path
    client: Client

    def run(self, **job: Any) -> str:
        """Submit a job from the workspace's folder; returns its id."""
        return submit(self.client, make_spec(job), self.folder, python=sys.executable).id

    def view(self, run_id: str) -> dict[str, Any]:
        """The run as its JSON, which is what the tests look at."""
        found: dict[str, Any] = to_json(self.client.run(run_id))
        return found

    def wait(self, run_id: str, *statuses: str, timeout_s: float = 60.0) -> dict[str, Any]:
        wanted = set(statuses) or ENDED

        def reached() -> dict[str, Any] | None:
            view = self.view(run_id)
            return view if view["status"] in wanted or view["status"] in ENDED else None

        return wait_until(reached, timeout_s, f"{run_id} in {sorted(wanted)}")

    def log(self, run_id: str, name: str = "user_logs/std_log.txt") -> bytes:
        return self.client.read_file(run_id, name)

    def printed(self, run_id: str) -> bytes:
        """What has come of its log until now; nothing where no line has."""
        try:
            return self.log(run_id)
        except NotFound:
            return b""

    def server(self) -> psutil.Process:
        return psutil.Process(self.client.health().pid)

    def agent(self, node: str = "local-0") -> psutil.Process:
        def pid() -> int | None:
            nodes = {item.name: item for item in self.client.cluster("local").nodes}
            return nodes[node].pid if node in nodes else None

        return process(pid, node)

    def nursery(self, node: str = "local-0") -> psutil.Process:
        return self.agent(node).children()[0]

    def keeper(self, run_id: str, rank: int = 0) -> psutil.Process:
        return self.rank(run_id, rank).parent()

    def rank(self, run_id: str, rank: int = 0) -> psutil.Process:
        def pid() -> int | None:
            ranks = self.view(run_id)["attempts"][-1]["ranks"]
            return ranks[rank]["pid"] if rank < len(ranks) else None

        return process(pid, f"rank {rank}")


on_both_databases = pytest.mark.parametrize("site", ["sqlite", "postgresql"], indirect=True)
"""The test runs on each of them."""


@pytest.fixture
def site(workspace: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """A workspace with its client; the parameter names its database."""
    postgres = getattr(request, "param", "sqlite") == "postgresql"
    if postgres:
        config = workspace / ".muster" / "workspace.json"
        url = request.getfixturevalue("fresh_postgres_url")
        config.write_text(json.dumps({**json.loads(config.read_text()), "database": url}))
    client = connect(find_workspace(workspace))
    yield Site(workspace, client)
    client.close()
    assert (workspace / ".muster" / "server" / "muster.db").exists() is not postgres
