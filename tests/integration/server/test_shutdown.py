"""A server that ends answers what was asked of it; who submits meanwhile gets one run."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from tests.conftest import wait_until

from muster.client.connect import connect
from muster.client.workspace import find_workspace
from muster.job.explain import make_spec

SUBMITTERS, EACH = 6, 5


def test_submissions_during_shutdowns_are_answered_and_make_one_run_each(workspace: Path) -> None:
    ref = find_workspace(workspace)
    first = connect(ref)
    spec = make_spec({"command": "true", "experiment_name": "many"})
    over = threading.Event()
    ended: list[int] = []

    def submit(number: int) -> list[str]:
        client = connect(ref)
        try:
            return [client.submit(spec, key=f"{number}-{index}").id for index in range(EACH)]
        finally:
            client.close()

    def end_servers() -> None:
        while not over.is_set() and len(ended) < 2:
            pid = first.health().pid
            os.kill(pid, signal.SIGTERM)
            ended.append(pid)
            wait_until(lambda pid=pid: not psutil.pid_exists(pid), what="the end of the server")

    with ThreadPoolExecutor(SUBMITTERS + 1) as pool:
        ending = pool.submit(end_servers)
        ids = [run for found in pool.map(submit, range(SUBMITTERS)) for run in found]
        over.set()
        ending.result()
    assert ended
    assert len(set(ids)) == SUBMITTERS * EACH
    assert {run.id for run in first.runs(limit=1000)} == set(ids)
    log = (workspace / ".muster/server/server.log").read_text()
    assert "Traceback" not in log
    wait_until(lambda: all(run.status == "Completed" for run in first.runs(limit=1000)), 60.0, "the end of all runs")
    first.close()
