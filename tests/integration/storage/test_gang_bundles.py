"""Code, environments and checkpoints that the nodes of a gang take from each other: a real server, real agents."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tests.integration.environments.conftest import Shelf, shelf
from tests.integration.server.conftest import Site

__all__ = ["shelf"]

LARGE = 20 << 20
JOB = """
import hashlib, os, pathlib, subprocess, sys

print("code", hashlib.sha256(pathlib.Path("large.bin").read_bytes()).hexdigest(), os.access("tool.sh", os.X_OK))
print("tool", subprocess.run(["small-tool"], capture_output=True, text=True).stdout.strip())
print("prefix", sys.prefix)
resume = os.environ.get("MUSTER_RESUME_DIR")
if resume:
    state = next(pathlib.Path(resume).rglob("state.bin"))
    print("resumed", hashlib.sha256(state.read_bytes()).hexdigest())
    sys.exit(0)
if os.environ["RANK"] == "0":
    folder = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"])
    (folder / ".one.tmp").mkdir()
    (folder / ".one.tmp" / "state.bin").write_bytes(pathlib.Path("large.bin").read_bytes()[::-1])
    (folder / ".one.tmp" / "part_0_of_1").touch()
    (folder / ".one.tmp").rename(folder / "one")
    sys.exit(1)
import time
time.sleep(120)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_CACHE_DIR", str(tmp_path / "cache"))


def shelved(site: Site) -> list[set[str]]:
    """The names of shared files, for each node that has a cache of its own."""
    caches = sorted((site.folder / ".muster").rglob("cache/data/shared"))
    return [
        {name for record in cache.glob("*.json") for name, _ in json.loads(record.read_text())["files"]}
        for cache in caches
    ]


def test_a_gang_shares_its_code_its_environment_and_its_checkpoint(site: Site, shelf: Shelf) -> None:
    site.client.create_cluster("gang", options={"max_nodes": 3, "min_nodes": 3, "cpus": 1, "share_data": True})
    gate = shelf.gated("slow")
    gate.open()
    shelf.wheel("small", "1.0", script="small-tool")
    (site.folder / "job.py").write_text(JOB)
    (site.folder / "tool.sh").write_text("#!/bin/sh\n")
    (site.folder / "tool.sh").chmod(0o755)
    (site.folder / "large.bin").write_bytes(random.Random(1).randbytes(LARGE))
    run = site.run(
        command="python job.py",
        code=".",
        compute="gang",
        environment={"pip": [*shelf.options, "small", "slow"]},
        resources={"instance_count": 3},
        distribution={"type": "pytorch", "process_count_per_instance": 1},
        retry={"user_error": 1, "backoff_s": 0},
    )
    view = site.wait(run, timeout_s=180.0)
    assert view["status"] == "Completed", view["verdict"]
    logs = [site.log(run, f"user_logs/std_log_process_{rank}.txt").decode() for rank in range(3)]
    for kind in ("code", "resumed"):
        assert len({line for log in logs for line in log.splitlines() if line.startswith(kind)}) == 1
    assert all("True" in log and "tool small 1.0" in log for log in logs), logs
    # Each has an environment of its own, and it was built once.
    assert len({line for log in logs for line in log.splitlines() if line.startswith("prefix")}) == 3
    assert gate.begun.read_text().count("begun") == 1
    found = shelved(site)
    assert len(found) == 3
    for names in found:
        assert "environment.tar" in names and "large.bin" in names and any("state.bin" in name for name in names)
