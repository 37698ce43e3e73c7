"""Nodes of a Slurm site reach the server over TLS, and so do tunnels into them."""

from __future__ import annotations

import os
import subprocess

from tests.conftest import MUSTER, wait_until
from tests.integration.server.conftest import Site


def test_a_shell_opens_on_a_node_of_slurm(site: Site) -> None:
    (site.folder / "waits.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(600)\n")
    run = site.run(command="exec python waits.py", code=".", compute="hpc")
    site.wait(run, "Running")
    wait_until(lambda: site.view(run)["attempts"][-1]["ranks"][0]["pid"], 30.0, "its rank")
    given = os.urandom(5 << 20)
    done = subprocess.run(
        [MUSTER, "shell", run, "--", "cat"], input=given, capture_output=True, check=False, timeout=60
    )
    # Not compared by ==, which would print all of it where it fails.
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) == len(given) and done.stdout.startswith(given)
    _, report = site.client.stacks(run)
    assert report.processes[0].threads[0].frames[0].line == 3
    site.client.cancel(run, force=True)
    site.wait(run)
