"""From a job and a folder to a submission."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sites.rest_server import Reply, Request, RestServer
from tests.sites.views import run_json

from muster.client.api import Client
from muster.client.submit import SentCode, absolute_inputs, submit
from muster.errors import JobError
from muster.host.http import Address
from muster.job.explain import make_spec
from muster.job.parts import Input


def test_local_input_paths_become_absolute_and_addresses_stay(tmp_path: Path) -> None:
    paths = {"a": "data", "b": "/abs/x", "c": "azureml://datastores/d/paths/p", "d": "azureml:name:1", "e": "../up"}
    spec = make_spec({"command": "true", "inputs": {**{k: {"path": v} for k, v in paths.items()}, "n": 3}})
    made = absolute_inputs(spec, tmp_path / "job")
    found = {name: value.path for name, value in made.inputs.items() if isinstance(value, Input)}
    assert found == {**paths, "a": str(tmp_path / "job/data"), "e": str(tmp_path / "up")}
    assert made.inputs["n"] == 3


def test_a_job_is_checked_sent_and_submitted(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text("print(1)")
    with RestServer() as server:
        server.on(
            "POST", "/api/v1/snapshots/missing", lambda request: Reply({"digest": "d", "missing": [], "known": False})
        )
        server.on("PUT", "/api/v1/snapshots/.*", {})
        server.on("POST", "/api/v1/runs", run_json(id="r"))
        client = Client(Address(server.url))
        view = submit(
            client, make_spec({"command": ["python", "train.py"], "code": "src"}), tmp_path, notices=["x", "x"]
        )
        client.close()
        assert view.id == "r"
        put, post = server.requests[-2:]
        assert post.json["snapshot"] == put.path.rsplit("/", 1)[1]
        assert post.json["notices"] == ["x"]


def test_code_that_was_sent_before_is_not_sent_again(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    with RestServer() as server:
        server.on("POST", "/api/v1/runs", run_json(id="r"))
        client = Client(Address(server.url))
        spec = make_spec({"command": ["python", "train.py"], "code": "."})
        submit(client, spec, tmp_path, sent=SentCode("d1", ("about it",)))
        client.close()
        (post,) = server.requests
        assert post.json["snapshot"] == "d1"
        assert post.json["notices"] == ["about it"]


def test_a_missing_script_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    with RestServer() as server:
        client = Client(Address(server.url))
        with pytest.raises(JobError, match=r"train\.py"):
            submit(client, make_spec({"command": ["python", "train.py"], "code": "src"}), tmp_path)
        assert server.requests == []


def test_code_that_changes_while_it_is_sent_is_scanned_again(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")

    def edit_once(request: Request) -> Reply:
        if len(server.requests) == 1:
            (tmp_path / "train.py").write_text("print(22)")
        return Reply({"digest": "d", "missing": [entry[0] for entry in request.json["files"].values()], "known": False})

    with RestServer() as server:
        server.on("POST", "/api/v1/snapshots/missing", edit_once)
        server.on("POST", "/api/v1/blobs", {})
        server.on("PUT", "/api/v1/snapshots/.*", {})
        server.on("POST", "/api/v1/runs", run_json(id="r"))
        client = Client(Address(server.url))
        submit(client, make_spec({"command": ["python", "train.py"], "code": "train.py"}), tmp_path)
        client.close()
        sent = [request.body for request in server.requests if request.path.endswith("/blobs")]
        assert [body.splitlines()[1:] for body in sent] == [[b"print(22)"]]
