"""Grants against real stores: what they name is open while they hold, everything else is refused."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.conftest import wait_until
from tests.integration.server.conftest import Site, on_both_databases
from tests.integration.storage.conftest import ACCOUNT, ACCOUNT_KEY, Azurite, Container, shared_by_module

from muster.client.calls import API
from muster.client.storage import Storage
from muster.errors import AccessDenied, Conflict
from muster.host.http import Address
from muster.host.server import ServerConnection
from muster.paths import WorkspacePaths
from muster.server.people.vault import load_vault
from muster.storage.grants import sign, verify
from muster.storage.sas import Signer
from muster.wire.data.access import GRANT_HEADER
from muster.wire.data.assets import NewAsset

OWN = "azureml://datastores/workspaceblobstore/paths/"


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Site:
    return shared_by_module(request)


class Guest:
    """Somebody who has a grant and nothing else."""

    def __init__(self, site: Site, token: str) -> None:
        self._connection = ServerConnection(Address(site.client.address.url))
        self._headers = {GRANT_HEADER: token}

    def get(self, path: str, **headers: str) -> bytes:
        with self._connection.stream("GET", f"{API}/data/{path}", headers={**self._headers, **headers}) as answer:
            return answer.read()

    def put(self, path: str, data: bytes, **query: Any) -> None:
        self._connection.request("PUT", f"{API}/data/{path}", body=data, headers=self._headers, query=query)

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def results(site: Site, storage: Storage, tmp_path: Path) -> str:
    (tmp_path / "results").mkdir()
    (tmp_path / "results/a.txt").write_text("0123456789")
    if not storage.files("workspaceblobstore", "results"):
        storage.upload(tmp_path / "results", "workspaceblobstore", "results")
        storage.upload(tmp_path / "results", "workspaceblobstore", "results-other")
    return OWN + "results"


def test_a_grant_opens_its_folder_to_read_and_nothing_else(site: Site, storage: Storage, results: str) -> None:
    guest = Guest(site, storage.grant(results, "read", True, 60).token)
    assert guest.get("workspaceblobstore/results/a.txt") == b"0123456789"
    assert guest.get("workspaceblobstore/results/a.txt", Range="bytes=2-4") == b"234"
    for path in ("workspaceblobstore/results-other/a.txt", "workspaceblobstore/assets/x", "other/results/a.txt"):
        with pytest.raises(AccessDenied, match="the grant covers"):
            guest.get(path)
    with pytest.raises(AccessDenied, match="not to write"):
        guest.put("workspaceblobstore/results/b.txt", b"x")
    guest.close()


def test_a_grant_to_write_does_not_reach_further(site: Site, storage: Storage, results: str) -> None:
    guest = Guest(site, storage.grant(results + "/new", "write", True, 60).token)
    guest.put("workspaceblobstore/results/new/x.bin", b"x" * 100_000)
    assert guest.get("workspaceblobstore/results/new/x.bin") == b"x" * 100_000
    with pytest.raises(AccessDenied, match="the grant covers"):
        guest.put("workspaceblobstore/results/x.bin", b"x")
    guest.close()


def test_a_grant_opens_no_other_call(site: Site, storage: Storage, results: str) -> None:
    token = storage.grant(results, "write", True, 60).token
    connection = ServerConnection(Address(site.client.address.url))
    for path in ("/runs", "/secrets", "/datastores"):
        with pytest.raises(AccessDenied, match="needs a token"):
            connection.request("GET", API + path, headers={GRANT_HEADER: token})
        with pytest.raises(AccessDenied, match="needs a token"):
            connection.request("GET", API + path, query={"grant": token})
    connection.close()


@on_both_databases
def test_a_revoked_grant_is_refused_at_once(site: Site, storage: Storage, results: str) -> None:
    made = storage.grant(results, "read", True, 60)
    guest = Guest(site, made.token)
    assert guest.get("workspaceblobstore/results/a.txt")
    storage.revoke(made.id)
    with pytest.raises(AccessDenied, match="revoked"):
        guest.get("workspaceblobstore/results/a.txt")
    guest.close()


def test_expired_early_and_forged_grants_are_refused(site: Site, storage: Storage, results: str) -> None:
    key = load_vault(WorkspacePaths(site.folder / ".muster"), {}).grant_key
    good = verify(storage.grant(results, "read", True, 60).token, key, time.time())
    now = time.time()
    cases = {
        "expired": sign(replace(good, not_before=now - 100, expires_at=now - 50), key),
        "not valid yet": sign(replace(good, not_before=now + 100, expires_at=now + 200), key),
        "signature": sign(replace(good, path=""), b"another key" * 3),
        "revoked": sign(replace(good, id="never-issued"), key),
        "is no grant": "garbage",
    }
    for message, token in cases.items():
        guest = Guest(site, token)
        with pytest.raises(AccessDenied, match=message):
            guest.get("workspaceblobstore/results/a.txt")
        guest.close()


def test_a_runs_grant_ends_with_its_attempt_and_covers_only_its_own(site: Site, blob: Container) -> None:
    """A credential that is too wide to be handed on: the node gets a grant of Muster's own."""
    from azure.storage.blob import generate_container_sas

    blob.put("x", b"far")
    blob.put("y", b"other")
    end = datetime.now(UTC) + timedelta(hours=1)
    sas = generate_container_sas(ACCOUNT, blob.name, ACCOUNT_KEY, permission="rl", expiry=end)
    blob.register("far", credential={"sas": sas})
    run = site.run(
        command="cat ${{inputs.x}}; sleep 60",
        inputs={"x": {"type": "uri_file", "path": "azureml://datastores/far/paths/x", "mode": "download"}},
    )
    view = site.wait(run, "Running")
    assert view["status"] == "Running", view["verdict"]
    order = next((site.folder / ".muster/nodes/local-0/attempts").glob("*/order.json"))
    access = json.loads(order.read_text())["inputs"][0]["access"]
    assert access["kind"] == "muster"
    assert order.stat().st_mode & 0o077 == 0
    guest = Guest(site, access["token"])
    assert guest.get("far/x") == b"far"
    with pytest.raises(AccessDenied, match="the grant covers"):
        guest.get("far/y")
    site.client.cancel(run, force=True)
    site.wait(run)

    def refused() -> bool:
        try:
            guest.get("far/x")
        except AccessDenied as error:
            return "is over" in error.message
        return False

    wait_until(refused, 20.0, "the end of the grant")
    guest.close()


def http(url: str, method: str = "GET", data: bytes | None = None) -> int:
    request = urllib.request.Request(url, data, {"x-ms-blob-type": "BlockBlob"} if data else {}, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_real_signatures_are_refused_when_early_late_widened_or_tampered(azurite: Azurite, blob: Container) -> None:
    blob.put("in/a", b"a")
    blob.put("other", b"o")
    now = time.time()

    def url(path: str, token: str) -> str:
        return f"{azurite.endpoint}/{blob.name}/{quote(path)}?{token}"

    def signed(path: str = "in/a", scope: str = "read", begin: float = now, end: float = now + 600) -> str:
        return Signer("blob", ACCOUNT, ACCOUNT_KEY, blob.name, begin, end, https_only=False).file(path, scope)

    assert http(url("in/a", signed())) == 200
    assert http(url("in/b", signed("in/b", "write")), "PUT", b"b") == 201
    assert http(url("other", signed())) == 403
    assert http(url("in/a", signed()), "PUT", b"x") == 403
    assert http(url("in/a", signed(end=now - 10))) == 403
    assert http(url("in/a", signed(begin=now + 5000, end=now + 6000))) == 403
    assert http(url("in/a", signed().replace("sp=r", "sp=rw"))) == 403
    assert http(url("in/a", signed().replace("sr=b", "sr=c"))) == 403
    assert http(url("in/a", signed()[:-6] + "AAAA%3D")) == 403
    assert http(f"{azurite.endpoint}/{blob.name}/in/a") in (403, 404, 409)


def test_a_run_gets_signatures_for_its_own_files_only(site: Site, azurite: Azurite, blob: Container) -> None:
    blob.put("in/a", b"a")
    blob.put("in/sub/b", b"b")
    blob.put("private", b"p")
    run = site.run(
        command="sleep 60",
        inputs={"data": {"path": "azureml://datastores/blob/paths/in", "mode": "download"}},
        outputs={"out": {"path": "azureml://datastores/blob/paths/out"}},
    )
    site.wait(run, "Running")
    token = json.loads((site.folder / ".muster/nodes/local-0/agent.json").read_text())["token"]
    agent = ServerConnection(replace(site.client.address, token=token))
    asked = {"run": run, "attempt": 1}
    files = agent.request("GET", f"{API}/agents/local-0/manifest", query={**asked, "name": "data"})["files"]
    assert [(entry["path"], entry["size"]) for entry in files] == [("a", 1), ("sub/b", 1)]
    base = f"{azurite.endpoint}/{blob.name}"
    assert http(f"{base}/in/a?{files[0]['token']}") == 200
    assert http(f"{base}/private?{files[0]['token']}") == 403
    assert http(f"{base}/in/a?{files[0]['token']}", "PUT", b"x") == 403
    fresh = agent.request("POST", f"{API}/agents/local-0/grants", json_body={**asked, "paths": {"out": ["m/w.bin"]}})
    assert ACCOUNT_KEY not in json.dumps(fresh)
    write = fresh["tokens"]["out"]["m/w.bin"]
    assert http(f"{base}/out/m/w.bin?{write}", "PUT", b"w") == 201
    assert http(f"{base}/in/a?{write}", "PUT", b"w") == 403
    for wrong in ({"out": ["../in/a"]}, {"data": ["x"]}):
        with pytest.raises(Exception, match=r"leaves its store|has no output"):
            agent.request("POST", f"{API}/agents/local-0/grants", json_body={**asked, "paths": wrong})
    with pytest.raises(AccessDenied, match="the agent of local-0 may not"):
        agent.request("GET", f"{API}/data/blob/private")
    agent.close()
    site.client.cancel(run, force=True)
    site.wait(run)


def test_what_a_data_asset_holds_cannot_be_written_over(site: Site, storage: Storage, results: str) -> None:
    storage.create_asset(NewAsset("results", results))
    guest = Guest(site, storage.grant(results, "write", True, 60).token)
    with pytest.raises(Conflict, match="belongs to the data asset results:1"):
        guest.put("workspaceblobstore/results/a.txt", b"changed")
    guest.close()
