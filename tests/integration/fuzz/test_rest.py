"""Whatever a caller sends to any call of the OpenAPI document, the server does not fail.

Schemathesis makes the requests, valid and invalid ones, from the document that the server itself gives out. They are
made for FUZZ_S seconds in all (`make fuzz` takes longer): others each time, but the same ones before a change goes in.
A failure names the seed to repeat it with.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.generation.modes import GenerationMode
from tests.unit.server.conftest import Server, server

__all__ = ["server"]

FUZZ_S = float(os.environ.get("MUSTER_TEST_FUZZ_S", "25"))
LEAST_SHARE_S = 0.2
SEED = int(os.environ.get("MUSTER_TEST_FUZZ_SEED") or (1 if os.environ.get("CI") else secrets.randbelow(1 << 32)))
PATIENCE_S = 20.0
# They last as long as whoever asks stays, or end the server.
LEFT_OUT = ("/stream", "/tunnels", "/shutdown")
METHODS = ("get", "post", "put", "patch", "delete", "head")
SPEC = {"command": "python train.py", "compute": "two"}


@pytest.fixture
def known(server: Server) -> dict[str, list[str]]:
    """Things that are there, by the name of the parameter that means them."""
    server.context.paths.config.write_text(json.dumps({"id": "w"}))
    run = server.call("POST", "/runs", {"key": "k", "spec": SPEC})[1]["id"]
    points = [{"name": "loss", "value": 1.0, "at": 1.0, "step": step} for step in range(3)]
    server.call("POST", f"/runs/{run}/metrics", {"points": points})
    server.call("POST", "/people", {"name": "ada", "role": "member"})
    token = server.call("POST", "/tokens", {"label": "x"})[1]["id"]
    server.call("PUT", "/secrets/WORD", {"value": "long enough"})
    server.status("PUT", f"/runs/{run}/files/outputs/a.txt", b"content", content_type="application/octet-stream")
    names = [run, "@latest", "ada", "two", "WORD", "workspaceblobstore", "outputs", "outputs/a.txt", token, "loss"]
    return {"": names, "ref": [run, "@latest"], "token_id": [token], "path": ["outputs/a.txt", "a", "..", "%2e%2e"]}


def operations(document: dict[str, Any]) -> Iterator[Any]:
    schema = schemathesis.openapi.from_dict(document)
    for found in schema.get_all_operations():
        operation = found.ok()
        if not any(part in operation.path for part in LEFT_OUT):
            yield operation


def test_no_request_makes_the_server_fail(server: Server, known: dict[str, list[str]]) -> None:
    document = server.call("GET", "/openapi.json")[1]
    chosen = list(operations(document))
    assert len(chosen) > 80
    began, seen = time.monotonic(), Counter[int]()
    left = [(operation, mode) for operation in chosen for mode in GenerationMode]
    # In another order each time, because on a slow machine the last ones do not get their turn.
    random.Random(SEED).shuffle(left)
    for number, (operation, mode) in enumerate(left):
        share = (began + FUZZ_S - time.monotonic()) / (len(left) - number)
        if share < 0 and is_enough(seen):
            break
        attack(server, operation, mode, known, time.monotonic() + max(share, LEAST_SHARE_S), seen)
    assert is_enough(seen)
    assert server.call("GET", "/runs")[0] == 200 and server.call("GET", "/health")[0] == 200


def is_enough(seen: Counter[int]) -> bool:
    """Whether there were many requests, of which some were answered and some refused."""
    return sum(seen.values()) > 100 and bool(seen.keys() & {200, 201, 204}) and bool(seen.keys() & {400, 404, 422})


def attack(
    server: Server, operation: Any, mode: GenerationMode, known: dict[str, list[str]], until: float, seen: Counter[int]
) -> None:
    """Make requests of one call until the time is up."""
    try:
        cases = operation.as_strategy(generation_mode=mode)
    except Exception as error:
        if "Impossible" in type(error).__name__ or "Unsatisfiable" in type(error).__name__:
            return
        raise
    known_names = st.dictionaries(
        st.sampled_from([item.name for item in operation.path_parameters] or [""]), st.integers(0, 9), max_size=3
    )

    @seed(SEED)
    @settings(
        max_examples=100_000,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, chosen=known_names)
    def one(case: Any, chosen: dict[str, int]) -> None:
        if time.monotonic() > until:
            raise TimeIsUp
        status, answer = send(server, case, {name: pick(known, name, at) for name, at in chosen.items()})
        seen[status] += 1
        assert status < 500, (
            f"{case.method} {case.formatted_path} {case.query} {case.body!r}: {answer!r} (MUSTER_TEST_FUZZ_SEED={SEED})"
        )

    try:
        one()
    except TimeIsUp:
        return
    except Exception as error:
        # Nothing fits a schema of which every value is allowed, turned into its opposite.
        if type(error).__name__ not in ("Unsatisfiable", "InvalidArgument"):
            raise


class TimeIsUp(Exception):
    """Enough was tried of one call."""


def pick(known: dict[str, list[str]], name: str, at: int) -> str:
    values = known.get(name) or known[""]
    return values[at % len(values)]


def send(server: Server, case: Any, chosen: dict[str, str]) -> tuple[int, bytes]:
    path = case.path
    for name, value in {**(case.path_parameters or {}), **chosen}.items():
        path = path.replace(f"{{{name}}}", str(value)).replace(f"{{{name}:path}}", str(value))
    body = b"" if is_absent(case.body) else case.body if isinstance(case.body, bytes) else dumped(case.body)
    query = case.query if isinstance(case.query, dict) else {}
    pairs = [(name, item) for name, value in query.items() for item in (value if isinstance(value, list) else [value])]
    target = f"{quote(path, safe='/@%')}?{urlencode(pairs, errors='replace')}".replace("/api/v1", "", 1)
    headers = {
        str(name).lower().replace("-", "_"): str(value).encode("latin-1", "replace").decode("latin-1")
        for name, value in (case.headers or {}).items()
        if str(name).lower() not in ("authorization", "content-length", "muster-grant")
    }
    return server.runner.run(asked(server, case.method.upper(), f"/api/v1{target}", body, headers))


async def asked(server: Server, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    given = {name: value for name, value in headers.items() if value.isascii()}
    return await asyncio.wait_for(server._call(method, path, body, given), PATIENCE_S)


def is_absent(body: Any) -> bool:
    return type(body).__name__ == "NotSet"


def dumped(body: Any) -> bytes:
    try:
        return json.dumps(body).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError):
        return repr(body).encode("utf-8", "replace")
