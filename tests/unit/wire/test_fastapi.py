"""FastAPI takes the messages as they are: extra fields refused, answers as the codec writes them, models documented."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from muster.wire.clusters import NewCluster
from muster.wire.codec import from_json, to_json
from muster.wire.node.containers import Container
from muster.wire.node.recipes import Recipe
from muster.wire.runs import RunView, Submission
from muster.wire.verdicts import RankExit, Verdict, VerdictEvidence

VERDICT = Verdict("exit_code", "m", evidence=VerdictEvidence((RankExit(1, "n", 3),)))
CONTAINER = Container("image", packages=Recipe("p", ("numpy",)))
RUNS = from_json(tuple[RunView, ...], json.loads((Path(__file__).parent / "examples.json").read_text())["runs"])


@pytest.fixture(scope="module")
def app() -> FastAPI:
    made = FastAPI()

    @made.post("/runs", status_code=201)
    async def submit(body: Submission) -> Submission:
        return body

    @made.post("/clusters")
    async def create(body: NewCluster) -> NewCluster:
        return body

    @made.get("/runs")
    async def runs() -> list[RunView]:
        return list(RUNS)

    @made.get("/verdict")
    async def verdict() -> Verdict:
        return VERDICT

    @made.get("/container")
    async def container() -> Container:
        return CONTAINER

    return made


def call(app: FastAPI, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """One request, without a server between."""
    answer: dict[str, Any] = {"body": b""}

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}

    async def send(message: MutableMapping[str, Any]) -> None:
        answer["status"] = message.get("status", answer.get("status"))
        answer["body"] += message.get("body", b"")

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "http_version": "1.1",
        "scheme": "http",
    }
    headers = [(b"content-type", b"application/json")]
    asyncio.run(app({**scope, "headers": headers, "root_path": "", "server": ("x", 80)}, receive, send))
    return answer["status"], json.loads(answer["body"])


def test_a_request_is_read(app: FastAPI) -> None:
    sent = {"key": "k", "spec": {"command": ["a", {"b": None}]}, "notices": ["n"]}
    status, answer = call(app, "POST", "/runs", sent)
    assert status == 201
    assert answer == to_json(from_json(Submission, sent))


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("/runs", {"key": "k", "spec": {}, "colour": 1}, ["body", "colour"]),
        ("/runs", {"spec": {}}, ["body", "key"]),
        ("/runs", {"key": "", "spec": {}}, ["body"]),
        ("/clusters", {"name": "../c"}, ["body"]),
        ("/clusters", {"name": "c", "options": []}, ["body", "options"]),
    ],
)
def test_a_wrong_request_is_refused(app: FastAPI, path: str, body: Any, where: list[str]) -> None:
    status, answer = call(app, "POST", path, body)
    assert status == 422
    assert answer["detail"][0]["loc"] == where


@pytest.mark.parametrize(("path", "value"), [("/runs", RUNS), ("/verdict", VERDICT), ("/container", CONTAINER)])
def test_an_answer_is_what_the_codec_writes(app: FastAPI, path: str, value: Any) -> None:
    assert call(app, "GET", path) == (200, to_json(value))


def test_the_document_shows_the_models(app: FastAPI) -> None:
    _, document = call(app, "GET", "/openapi.json")
    schemas = document["components"]["schemas"]
    assert {"RunView", "AttemptView", "RankView", "Verdict", "VerdictEvidence", "Submission", "Container"} <= set(
        schemas
    )
    assert schemas["Submission"]["additionalProperties"] is False
    assert schemas["RunView"]["properties"]["attempts"]["items"] == {"$ref": "#/components/schemas/AttemptView"}
    assert "Queued" in schemas["RunView"]["properties"]["status"]["enum"]
    answer = document["paths"]["/verdict"]["get"]["responses"]["200"]
    assert answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Verdict"}
