"""Whoever dies in the middle of a tunnel: the others notice, and nothing is left."""

from __future__ import annotations

import pytest
from tests.conftest import wait_until
from tests.integration.tunnels.conftest import Running, exists

LOOP = ("sh", "-c", "echo $$; while :; do sleep 1; done")


@pytest.mark.parametrize("victim", ["client", "server", "agent"])
def test_a_death_ends_the_session_and_what_it_started(own_run: Running, victim: str) -> None:
    running = own_run
    shell = running.cli.start("shell", running.id, "--", *LOOP)
    started = int(shell.stdout.readline())
    assert exists(started)
    {"client": shell.kill, "server": running.site.server().kill, "agent": running.site.agent().kill}[victim]()
    wait_until(lambda: not exists(started), what="the end of what the session had started")
    _, errors = shell.communicate(timeout=60)
    if victim != "client":
        assert shell.returncode == 3
        assert f"the tunnel to run {running.id} was cut" in errors
    if victim == "server":
        # The run goes on, and the next server opens tunnels again.
        assert running.output("echo", "again") == "again\n"
