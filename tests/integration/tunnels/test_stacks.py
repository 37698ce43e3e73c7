"""`muster stacks`: where ranks are, by py-spy and by their own handler."""

from __future__ import annotations

import json

from tests.conftest import wait_until
from tests.integration.tunnels.conftest import Running

from muster.agent.run.sessions import python_stacks
from muster.agent.run.sessions.session_rank import SessionRank


def test_equal_stacks_are_shown_once(running: Running) -> None:
    running.port(0), running.port(1)
    shown = running.cli("stacks", running.id)
    assert shown.returncode == 0, shown.stderr
    compute, fetch = shown.stdout.split("\n\n")
    assert compute.startswith("rank 0:\n  compute ") and "ranks.py:" in compute
    assert fetch.startswith("rank 1:\n  fetch ")
    both = json.loads(running.cli("stacks", running.id, "--rank", "1", "--json").stdout)
    assert both["how"] == "py-spy" and {process["rank"] for process in both["processes"]} == {1}
    assert "serve" in running.cli("stacks", running.id, "--rank", "0", "--threads").stdout


def test_a_rank_tells_by_itself_where_it_is_without_py_spy(running: Running) -> None:
    """Its handler writes to its log, from where it is read; the rank goes on."""
    process = running.site.rank(running.id, 1)
    wait_until(lambda: running.port(1))
    (found,) = python_stacks.pythons(SessionRank(1, {}, "/", process.pid))
    report = python_stacks._by_handler(found)
    assert not report["trouble"]
    main = report["threads"][0]
    assert main["name"] == "MainThread" and main["frames"][0]["function"] == "fetch"
    assert {frame["function"] for thread in report["threads"] for frame in thread["frames"]} >= {"serve", "fetch"}
    assert process.is_running()
