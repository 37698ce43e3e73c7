"""The machine's clock is set while runs wait and run: waits, durations and cost are those of the monotonic clock."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site

from muster.client.connect import connect
from muster.client.workspace import find_workspace

SERVER = """
import sys, time
from pathlib import Path
real, offset = time.time, Path(sys.argv.pop(1))
time.time = lambda: real() + float(offset.read_text())
from muster.server.main import main
main()
"""
HOURS_2 = 7200.0


class Clocked(Site):
    """A workspace whose server reads a clock that the test sets."""

    offset: Path

    def set_clock(self, seconds: float) -> None:
        part = self.offset.with_suffix(".part")
        part.write_text(str(seconds))
        part.replace(self.offset)

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", SERVER, str(self.offset), "--workspace", str(self.folder / ".muster")]
        return subprocess.Popen(command)


@pytest.fixture
def site(workspace: Path, tmp_path: Path) -> Iterator[Clocked]:
    found = Clocked(workspace, None)  # type: ignore[arg-type]
    found.offset = tmp_path / "offset"
    found.set_clock(0.0)
    process = found.start()
    wait_until(lambda: (workspace / ".muster/server/server.json").exists(), what="the server")
    found.client = connect(find_workspace(workspace))
    yield found
    found.client.shutdown(force=True)
    process.wait(20)


def node_hours(site: Site) -> float:
    total = site.client.cost("run").total
    return total.node_hours if total else 0.0


def test_a_clock_set_forward_bills_no_hours_and_one_set_back_holds_up_no_attempt(site: Clocked, tmp_path: Path) -> None:
    go = tmp_path / "go"
    retry = {"user_error": 1, "backoff_s": 3, "on_codes": ["exit_code"]}
    run_id = site.run(command=f"while [ ! -e {go} ]; do sleep 0.05; done; exit $((2 - MUSTER_ATTEMPT))", retry=retry)
    site.wait(run_id, "Running")
    began = time.monotonic()
    site.set_clock(HOURS_2)
    now = time.time() + HOURS_2
    wait_until(lambda: site.view(run_id)["started_at"] > now - 600, what="times that moved with the clock")
    assert node_hours(site) * 3600 <= time.monotonic() - began + 60
    go.touch()
    wait_until(lambda: "attempt 2 starts at" in site.view(run_id)["reason"], what="the back-off")
    site.set_clock(0.0)
    view = site.wait(run_id)
    assert view["status"] == "Completed"
    assert node_hours(site) * 3600 <= time.monotonic() - began + 60
    ends = [attempt["ended_at"] - attempt["created_at"] for attempt in view["attempts"]]
    assert all(0 <= lasted < 300 for lasted in ends)
