"""A workspace whose bytes lie elsewhere than on the server's disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.server import test_life
from tests.integration.server.conftest import Site

from muster.client.connect import connect
from muster.client.workspace import find_workspace


@pytest.fixture
def site(workspace: Path) -> Iterator[Site]:
    # The filesystem lives in the server's memory: every byte that comes back went through fsspec.
    config = workspace / ".muster" / "workspace.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "store": "memory://muster"}))
    client = connect(find_workspace(workspace))
    yield Site(workspace, client)
    client.close()


def test_code_logs_and_outputs_live_in_the_store(site: Site):
    text = "import os; os.makedirs('outputs', exist_ok=True); open('outputs/m.txt', 'w').write('model'); print('done')"
    run_id = site.run(code=test_life.code(site, text), command="python train.py")
    assert site.wait(run_id)["status"] == "Completed"
    assert site.log(run_id, "outputs/m.txt") == b"model"
    assert site.log(run_id) == b"done\n"
    assert not (site.folder / ".muster" / "store").exists()
