"""Every route says what it takes and what it answers, in types that refuse what they do not know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, get_args

import pytest
from fastapi.routing import APIRoute
from tests.unit.server.conftest import Server

from muster.server.http.app import ROUTERS

ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
every_route = pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{min(route.methods)} {route.path}")


def messages(kind: Any) -> Iterator[Any]:
    """The messages in a type such as `list[RunView]`."""
    if get_args(kind):
        for part in get_args(kind):
            yield from messages(part)
    elif kind is not type(None):
        yield kind


def is_message(kind: Any) -> bool:
    return is_dataclass(kind) and getattr(kind, "__pydantic_config__", {}).get("extra") == "forbid"


@every_route
def test_every_answer_is_a_message_or_a_response_of_its_own(route: APIRoute) -> None:
    if route.response_model is None:
        assert route.endpoint.__annotations__["return"].endswith("Response")
    else:
        kinds = list(messages(route.response_model))
        assert kinds and all(map(is_message, kinds))


@every_route
def test_every_body_is_a_message(route: APIRoute) -> None:
    assert all(is_message(field.field_info.annotation) for field in route.dependant.body_params)


def test_the_openapi_document_shows_them(server: Server) -> None:
    status, document = server.call("GET", "/openapi.json")
    assert status == 200
    shown = document["paths"]["/api/v1/runs"]["post"]
    assert shown["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/Submission")
    assert shown["responses"]["201"]["content"]["application/json"]["schema"]["$ref"].endswith("/RunView")
    schemas = document["components"]["schemas"]
    for name in ("Submission", "RunView", "AttemptView", "Verdict", "Health", "ModelView"):
        assert schemas[name]["additionalProperties"] is False, name


def test_an_unknown_field_is_refused_with_its_name(server: Server) -> None:
    status, answer = server.call("POST", "/runs", {"key": "k", "spec": {"command": "true"}, "speck": 1})
    assert status == 422 and "speck" in answer["error"]["message"]


def test_what_a_message_checks_itself_is_refused_too(server: Server) -> None:
    status, answer = server.call("POST", "/runs", {"key": "", "spec": {"command": "true"}})
    assert status == 422 and "the length of key" in answer["error"]["message"]
    status, answer = server.call("POST", "/models", {"name": "a b"})
    assert status == 422 and "'a b' is not valid" in answer["error"]["message"]
