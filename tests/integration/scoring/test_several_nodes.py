"""A deployment whose replicas are on several nodes: one that dies leaves the others at work."""

from __future__ import annotations

import json
from typing import Any

import psutil
import pytest
from tests.conftest import wait_until
from tests.integration.cli.conftest import cli
from tests.integration.scoring.test_endpoints import Asking, deploy, on_its_node, processes_of

__all__ = ["cli", "deploy"]

MORE = """
compute: away
nodes: 2
instance_count: 4
idempotent: true
request_settings: {request_timeout_ms: 60000, max_concurrent_requests_per_instance: 16}
"""


@pytest.mark.timeout(300)
def test_a_node_that_dies_leaves_the_replicas_on_the_others_at_work(cli: Any, deploy: Any) -> None:
    assert cli("cluster", "create", "away", "--max-nodes", "2").returncode == 0
    refused = deploy("blue", more=MORE.replace("nodes: 2", "nodes: 3"), fails=True)
    assert "3 nodes cannot share 4 evenly" in refused.stderr
    refused = deploy("blue", more=MORE.replace("nodes: 2", "nodes: 4"), fails=True)
    assert "asks for 4 nodes; away has 2 at the most" in refused.stderr
    deploy("blue", "--all-traffic", more=MORE)
    ask = Asking(cli)
    by_node = _replicas_by_node(cli)
    assert [len(found) for found in by_node.values()] == [2, 2]
    (door,) = (_agent_of(process) for process in processes_of(cli.folder, "door") if _last(process) == "door")
    (victim,) = (node for node in by_node if node != door.pid)
    with ask.load(4) as found:
        wait_until(lambda: found["200"] > 20, 60, "answers")
        for process in on_its_node(by_node[victim][0]):
            process.kill()
        seen = found["200"]
        wait_until(lambda: found["200"] > seen + 50, 60, "answers of the others")
        wait_until(lambda: _ready(ask) == 4 and len(_replicas_by_node(cli)) == 2, 60, "all replicas again")
    assert set(found) == {"200"}, found
    assert door.is_running()
    shown = cli("endpoint", "show", "digits").stdout
    assert "4 of 4 on 2 nodes" in shown
    assert len(ask.view()["deployments"][0]["runs"]) == 2
    assert cli("endpoint", "logs", "digits", "-d", "blue").stdout.count("replica 1 is ready") >= 2
    # A run that can have no further attempt is not the end of what served.
    (again,) = (run for run in ask.view()["deployments"][0]["runs"] if "attempt 2" in cli("show", run).stdout)
    assert json.loads(cli("show", again, "--json").stdout)["status"] == "Running"


def _replicas_by_node(cli: Any) -> dict[int, list[psutil.Process]]:
    """Replicas by the process of their node's agent."""
    found: dict[int, list[psutil.Process]] = {}
    for process in processes_of(cli.folder, "serve.replica"):
        try:
            found.setdefault(_agent_of(process).pid, []).append(process)
        except (psutil.Error, StopIteration):
            continue
    return found


def _agent_of(process: psutil.Process) -> psutil.Process:
    return next(item for item in process.parents() if "muster.agent" in item.cmdline())


def _last(process: psutil.Process) -> str:
    return process.cmdline()[2].rpartition(".")[2]


def _ready(ask: Asking) -> int:
    return int(ask.view()["deployments"][0]["ready"])
