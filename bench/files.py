"""Uploading 20,000 small files of an attempt to the server: batched as agents do it, against one call per file."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

from bench.measure import Figure, Workspace, quick, report, temporary_workspace
from muster.agent.link import Link
from muster.agent.ship import files
from muster.client.submit import submit
from muster.job.explain import make_spec
from muster.paths import AttemptPaths
from muster.wire.codec import from_json
from muster.wire.node.agents import AgentConfig, Order

CONTENT = b"x" * 1000


def main() -> None:
    is_quick = quick(__doc__)
    many, few, rounds = (2_000, 100, 1) if is_quick else (20_000, 500, 3)
    together: list[float] = []
    singly: list[float] = []
    with temporary_workspace() as workspace:
        order, link = running_attempt(workspace)
        for number in range(rounds):
            singly.append(rate(workspace.folder / f"few-{number}", few, order, link, at_once=False))
            together.append(rate(workspace.folder / f"many-{number}", many, order, link, at_once=True))
            print(f"round {number + 1}: {singly[-1]:.0f} and {together[-1]:.0f} files/s", flush=True)
        workspace.client.cancel(order.run, force=True)
        while workspace.client.run(order.run).status != "Canceled":
            time.sleep(0.05)
    ratio = sorted(new / old for new, old in zip(together, singly, strict=True))[rounds // 2]
    figures = [
        Figure("one call and one database write for each file", sorted(singly)[rounds // 2], "files/s", samples=singly),
        Figure(f"{many:,} files together", sorted(together)[rounds // 2], "files/s", samples=together),
        Figure("ratio", ratio, "", at_least=10.0),
    ]
    report("files", figures, is_quick)


def running_attempt(workspace: Workspace) -> tuple[Order, Link]:
    """An attempt that runs, and its node's way to the server."""
    spec = make_spec({"command": "sleep 3600"})
    run = submit(workspace.client, spec, workspace.folder)
    while workspace.client.run(run.id).status != "Running":
        time.sleep(0.05)
    config = next(workspace.folder.glob(".muster/nodes/*/agent.json"))
    return Order(run.id, 1, "go"), Link(from_json(AgentConfig, json.loads(config.read_text())), "bench")


def rate(folder: Path, count: int, order: Order, link: Link, at_once: bool) -> float:
    """Files a second."""
    paths = AttemptPaths(folder)
    outputs = paths.work / "outputs" / folder.name
    outputs.mkdir(parents=True)
    for number in range(count):
        (outputs / f"{number:05}").write_bytes(CONTENT)
    os.sync()
    unwanted = threading.Event()
    began = time.perf_counter()
    if at_once:
        sent = len(files.send_all(order, paths, link, unwanted, lambda _: None).files)
    else:
        found = files.find(paths).files
        sent = len([files.send(order, name, path, link, unwanted) for name, path in found.items()])
    assert sent == count
    return count / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
