"""Files of TensorBoard and W&B become lines of events while their job runs, each number once."""

from __future__ import annotations

import json
from pathlib import Path

from .conftest import Harness, until

DATA = Path(__file__).parents[2] / "unit" / "agent" / "ship" / "eventfiles" / "data"
TORCH, OFFLINE = DATA / "events.out.tfevents.1.torch", DATA / "run-offline.wandb"


def points(node: Harness, key: tuple[str, int], tool: str, name: str) -> list[float]:
    """The steps of a metric, as the server has them."""
    stream = node.server.kept.streams.get((*key, f"events/rank_0.{tool}.jsonl"), b"")
    items = [
        json.loads(line) for line in bytes(stream).splitlines(keepends=True) if line.endswith(b"\n") and line.strip()
    ]
    return [item["step"] for item in items if item.get("name") == name and item["kind"] == "metric"]


def test_numbers_come_while_the_job_runs_and_each_once(node: Harness) -> None:
    node.start_agent()
    key = node.run(
        f"mkdir -p runs wandb/offline-run-1; head -c 300 {TORCH} > runs/events.out.tfevents.1.h; "
        f"until [ -e go ]; do sleep 0.02; done; tail -c +301 {TORCH} >> runs/events.out.tfevents.1.h; "
        f"cp {OFFLINE} wandb/offline-run-1/run-1.wandb"
    )
    until(lambda: points(node, key, "tensorboard", "loss"), 60, "the first points")
    early = points(node, key, "tensorboard", "loss")
    assert early == [float(step) for step in range(len(early))] and len(early) < 12
    (node.paths.attempt(*key).work / "go").touch()
    node.server.wait_event(key, "delivered", timeout_s=60)
    assert points(node, key, "tensorboard", "loss") == [float(step) for step in range(12)]
    assert points(node, key, "wandb", "late") == [200.0]
    assert points(node, key, "wandb", "loss") == [], "TensorBoard has it already"


def test_an_agent_that_is_killed_doubles_nothing(node: Harness) -> None:
    node.start_agent()
    key = node.run(f"mkdir runs; cat {TORCH} > runs/events.out.tfevents.1.h; sleep 600")
    until(lambda: points(node, key, "tensorboard", "loss"), 60, "the first points")
    node.kill_agent()
    node.start_agent()
    node.server.wait_event(key, "delivered", timeout_s=60)
    assert points(node, key, "tensorboard", "loss") == [float(step) for step in range(12)]


def test_a_job_can_have_its_files_left_alone(node: Harness) -> None:
    node.start_agent()
    key = node.run(f"cp {TORCH} events.out.tfevents.1.h", user_env={"MUSTER_READ_EVENT_FILES": "0"})
    node.server.wait_event(key, "delivered", timeout_s=60)
    assert points(node, key, "tensorboard", "loss") == []
    assert (*key, "outputs/events.out.tfevents.1.h") in node.server.kept.files
