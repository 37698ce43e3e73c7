"""A workspace whose store is a blob container: code, logs and outputs live there, also after a killed server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site
from tests.integration.storage.conftest import ACCOUNT, ACCOUNT_KEY, Azurite

from muster.client.connect import connect
from muster.client.workspace import find_workspace


@pytest.fixture
def container(azurite: Azurite) -> str:
    pytest.importorskip("adlfs", reason="adlfs is not installed (pip install 'muster[azure]')")
    return azurite.new_container()


@pytest.fixture
def site(workspace: Path, azurite: Azurite, container: str) -> Iterator[Site]:
    config = workspace / ".muster" / "workspace.json"
    key = workspace / "account.txt"
    key.write_text(
        f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};BlobEndpoint={azurite.endpoint};"
    )
    store = {"store": f"abfs://{container}/team", "store_options": {"connection_string": {"file": str(key)}}}
    config.write_text(json.dumps({**json.loads(config.read_text()), **store}))
    client = connect(find_workspace(workspace))
    yield Site(workspace, client)
    client.close()


def test_logs_and_outputs_are_in_the_container_also_when_the_server_was_killed(
    site: Site, azurite: Azurite, container: str
) -> None:
    command = "echo early; mkdir -p outputs; echo model > outputs/m; until [ -e $MUSTER_STOP_FILE ]; do sleep 0.1; done"
    run = site.run(command=command)
    site.wait(run, "Running")
    log = "user_logs/std_log.txt"
    wait_until(lambda: {"path": log, "size": 6} in site.view(run)["files"], 30.0, "the first line")
    site.server().kill()
    # The next server brings what the last one had not.
    site.client.health()
    name = f"team/runs/{run}/attempts/1/{log}"
    wait_until(lambda: name in azurite.names(container), 60.0, "the log in the container")
    assert azurite.get(container, name) == b"early\n"
    site.client.cancel(run)
    site.wait(run)
    wait_until(lambda: f"team/runs/{run}/attempts/1/outputs/m" in azurite.names(container), 30.0, "the output")
    assert site.log(run, "outputs/m") == b"model\n"
