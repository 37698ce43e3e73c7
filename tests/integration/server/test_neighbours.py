"""A server works with agents of neighbouring versions: an upgrade does not end what runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.server.conftest import Site

from muster.client.connect import connect
from muster.client.workspace import find_workspace
from muster.defaults import OLDEST_PROTOCOL, PROTOCOL_VERSION

AGENT = """\
import sys
if sys.orig_argv[1:3] == ["-m", "muster.agent"]:
    import muster.defaults
    muster.defaults.PROTOCOL_VERSION = {protocol}
    import muster.agent.link as link
    import muster.wire.node.agents as messages
    if {adds}:
        plain = messages.to_json
        def with_more(message):
            said = plain(message)
            return {{**said, "of_tomorrow": 1}} if isinstance(said, dict) else said
        messages.to_json = link.to_json = with_more
"""


@pytest.fixture
def with_agents(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, bool], Site]:
    """A workspace whose agents speak another protocol than its server, and may say more."""

    def make(protocol: int, adds: bool) -> Site:
        (tmp_path / "sitecustomize.py").write_text(AGENT.format(protocol=protocol, adds=adds))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return Site(workspace, connect(find_workspace(workspace)))

    return make


@pytest.mark.parametrize(("protocol", "adds"), [(OLDEST_PROTOCOL, False), (PROTOCOL_VERSION + 1, True)])
def test_agents_of_the_version_before_and_after_run_jobs(
    with_agents: Callable[[int, bool], Site], protocol: int, adds: bool
):
    site = with_agents(protocol, adds)
    run_id = site.run(command="echo hello; mkdir -p outputs; echo kept > outputs/file")
    view = site.wait(run_id)
    assert view["status"] == "Completed", view["verdict"]
    assert site.log(run_id) == b"hello\n"
    assert site.client.read_file(run_id, "outputs/file") == b"kept\n"
    site.client.close()
