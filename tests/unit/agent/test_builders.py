"""Processes that build or move something end whole."""

from __future__ import annotations

import subprocess

import psutil
from tests.conftest import wait_until

from muster.agent.builders import builders, end_group


def test_a_builder_ends_with_all_that_it_started() -> None:
    child = subprocess.Popen(
        ["sh", "-c", "sleep 600 & echo $!; wait"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    builders.add(child.pid)
    assert child.stdout is not None and child.stdin is not None
    grandchild = psutil.Process(int(child.stdout.readline()))
    end_group(child)
    child.stdout.close()
    assert child.returncode == -9 and child.pid not in builders and child.stdin.closed
    wait_until(lambda: not _lives(grandchild), 10.0, "the end of what it started")


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
