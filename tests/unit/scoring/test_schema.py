"""Scripts whose `run()` has the decorators of `inference_schema`: arguments by name, and their description.

The package is stood for by what is asked of it; the real one is tried in `tests/frameworks/scoring_clients.py`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.scoring.script import BadScript
from muster.scoring.serve.app import App
from muster.scoring.serve.batching import Runner
from muster.scoring.serve.models import load
from muster.scoring.serve.settings import Settings

SCRIPT = """
from inference_schema.schema_util import decorated

@decorated
def run(data, scale=2, request_headers=None):
    return [value * scale for value in data] + [request_headers["x-tenant"]]
"""
TAKEN = {"type": "object", "properties": {"data": {"type": "array"}}}


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    library: Any = types.ModuleType("inference_schema.schema_util")
    known: list[Any] = []
    library.decorated = lambda run: known.append(run) or run
    library.is_schema_decorated = lambda run: run in known
    library.get_supported_versions = lambda run: ["3.0", "3.1"]
    library.get_input_schema = lambda run: TAKEN
    library.get_output_schema = lambda run: {"type": "array"}
    for name, module in (("inference_schema", types.ModuleType("inference_schema")), (library.__name__, library)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "decorated_script.py"
    file.write_text(SCRIPT)
    yield str(file)
    sys.modules.pop(file.stem, None)


def answers(settings: Settings, *asked: tuple[str, str, str, bytes]) -> list[tuple[int, Any]]:
    """Codes and bodies for methods, paths, content types and bodies."""

    async def work() -> list[tuple[int, Any]]:
        model = load(settings)
        runner = Runner(model, asyncio.get_running_loop(), 1, 0.0, 10)
        app = App(settings, model, runner)
        try:
            return [await one(app, *item) for item in asked]
        finally:
            runner.close()

    async def one(app: App, method: str, path: str, kind: str, body: bytes) -> tuple[int, Any]:
        route, _, query = path.partition("?")
        headers = [(b"content-type", kind.encode()), (b"x-tenant", b"t")]
        scope = {"method": method, "path": route, "query_string": query.encode(), "headers": headers}
        given, sent = [{"type": "http.request", "body": body}], []

        async def receive() -> Any:
            return given.pop() if given else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, send)
        return sent[0]["status"], json.loads(sent[1]["body"])

    return asyncio.run(work())


JSON = "application/json"


def test_arguments_are_the_bodys_values_by_name(script: str) -> None:
    found = answers(
        Settings(script=script),
        ("POST", "/score", JSON, b'{"data": [1, 2]}'),
        ("POST", "/score", "application/json; charset=utf-8", b'{"data": [1], "scale": 3, "other": 1}'),
        ("GET", "/score?data=[1]", "", b""),
    )
    assert found == [(200, [2, 4, "t"]), (200, [3, "t"]), (200, [2, "t"])]


def test_what_cannot_be_filled_in_is_the_clients_fault(script: str) -> None:
    plain, missing, listed, empty = answers(
        Settings(script=script),
        ("POST", "/score", "text/plain", b'{"data": [1]}'),
        ("POST", "/score", JSON, b'{"scale": 1}'),
        ("POST", "/score", JSON, b"[1]"),
        ("POST", "/score", JSON, b""),
    )
    assert plain[0] == 415 and "Content-Type: application/json" in plain[1]["message"]
    assert missing == (400, {"message": "the body has no value for data"})
    assert listed[0] == 400 and "run() takes data, scale by name" in listed[1]["message"]
    assert empty[0] == 400


def test_the_description_is_made_from_the_decorators(script: str) -> None:
    second, third, unknown = answers(
        Settings(script=script, name="net", version="4"),
        ("GET", "/swagger.json", "", b""),
        ("GET", "/swagger.json?version=3", "", b""),
        ("GET", "/swagger.json?version=9", "", b""),
    )
    assert second[0] == 404 and "version 2" in second[1]["message"]
    assert third[0] == 200 and third[1]["info"] == {"title": "net", "version": "4"}
    assert third[1]["components"]["schemas"] == {"ServiceInput": TAKEN, "ServiceOutput": {"type": "array"}}
    assert unknown[0] == 404


def test_batches_of_bodies_are_refused_where_arguments_have_names(script: str) -> None:
    with pytest.raises(BadScript, match="max_batch"):
        load(Settings(script=script, max_batch=2))
