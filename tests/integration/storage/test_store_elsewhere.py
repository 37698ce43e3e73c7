"""A workspace whose store is a blob container: code, logs and outputs live there, also after a killed server."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site
from tests.integration.storage.conftest import ACCOUNT, ACCOUNT_KEY, Azurite

from muster.client.connect import connect
from muster.client.storage import Storage
from muster.client.workspace import find_workspace
from muster.errors import ServerUnavailable
from muster.wire.data.assets import NewAsset


@pytest.fixture
def container(azurite: Azurite) -> str:
    pytest.importorskip("adlfs", reason="adlfs is not installed (pip install 'muster-ml[azure]')")
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


def test_a_store_that_cannot_be_used_is_said_in_one_line(workspace: Path, azurite: Azurite, container: str) -> None:
    config = workspace / ".muster" / "workspace.json"
    wrong = base64.b64encode(b"another key").decode()
    (workspace / "wrong.txt").write_text(
        f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={wrong};BlobEndpoint={azurite.endpoint};"
    )
    options = {"connection_string": {"file": str(workspace / "wrong.txt")}}
    store = {"store": f"abfs://{container}/team", "store_options": options}
    config.write_text(json.dumps({**json.loads(config.read_text()), **store}))
    (workspace / ".muster/server").mkdir(exist_ok=True)
    (workspace / ".muster/server/server.log").write_text("words of an earlier server\n")
    with pytest.raises(ServerUnavailable) as caught:
        connect(find_workspace(workspace))
    said = str(caught.value)
    assert f"the workspace store abfs://{container}/team cannot be used" in said
    assert wrong not in said and "Traceback" not in said and "earlier server" not in said


def test_what_lies_in_the_container_is_an_input_of_jobs(site: Site, tmp_path: Path) -> None:
    storage = Storage(site.client.calls)
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.txt").write_text("content")
    storage.upload(tmp_path / "set", "workspaceblobstore", "plain")
    storage.upload_asset(tmp_path / "set", NewAsset("kept", ""), "workspaceblobstore")
    places = {"plain": "azureml://datastores/workspaceblobstore/paths/plain", "kept": "azureml:kept:1"}
    inputs = {name: {"type": "uri_folder", "path": path} for name, path in places.items()}
    run = site.run(command="cat ${{inputs.plain}}/a.txt ${{inputs.kept}}/a.txt", inputs=inputs)
    assert site.wait(run)["status"] == "Completed", site.view(run)["verdict"]
    assert site.log(run) == b"contentcontent"


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
