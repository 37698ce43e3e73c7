"""`/swagger.json`: the script's own file if it has one, otherwise made from the decorators of its `run()`."""

from __future__ import annotations

import os
from typing import Mapping, Optional, Tuple

from muster.scoring.serve.schema import Json, Schema

_FILES: Mapping[str, Tuple[str, ...]] = {
    "2.0": ("swagger.json", "swagger2.json"),
    "3.0": ("swagger3.json",),
    "3.1": ("swagger3.1.json", "swagger3.json"),
}
_SAME = {"2": "2.0", "3": "3.0"}
_ANYTHING: Mapping[str, Json] = {"type": "object", "example": {}}


class NoDescription(LookupError):
    """There is no description in the version that is asked for."""


def file_of(version: str) -> Optional[str]:
    """The script's file that describes it; raises NoDescription for an unknown version."""
    version = _SAME.get(version, version)
    if version not in _FILES:
        raise NoDescription("there is no description of version {}; 2, 3 and 3.1 are known".format(version))
    return next((name for name in _FILES[version] if os.path.isfile(name)), None)


def described(version: str, name: str, number: str, schema: Optional[Schema]) -> Mapping[str, Json]:
    """The description of a model's service, in OpenAPI."""
    version = _SAME.get(version, version)
    found = (_ANYTHING, _ANYTHING) if schema is None else schema.described(version)
    if found is None:
        raise NoDescription("what run() takes cannot be described in version {}; another one may".format(version))
    schemas = {"ServiceInput": found[0], "ServiceOutput": found[1]}
    info = {"title": name, "version": number}
    if version == "2.0":
        parts: Mapping[str, Json] = {
            "consumes": ["application/json"],
            "produces": ["application/json"],
            "definitions": schemas,
        }
        return {"swagger": "2.0", "info": info, "paths": _paths_of_2(), "securityDefinitions": _bearer("2.0"), **parts}
    shapes: Mapping[str, Json] = {"schemas": schemas, "securitySchemes": _bearer(version)}
    return {"openapi": "3.0.0" if version == "3.0" else "3.1.0", "info": info, "paths": _paths(), "components": shapes}


def _bearer(version: str) -> Mapping[str, Json]:
    if version == "2.0":
        return {"Bearer": {"type": "apiKey", "name": "Authorization", "in": "header"}}
    return {"Bearer": {"type": "http", "scheme": "bearer"}}


def _paths_of_2() -> Mapping[str, Json]:
    body: Mapping[str, Json] = {
        "name": "serviceInputPayload",
        "in": "body",
        "schema": {"$ref": "#/definitions/ServiceInput"},
    }
    scored: Mapping[str, Json] = {
        "description": "what run() returned",
        "schema": {"$ref": "#/definitions/ServiceOutput"},
    }
    return _both({"parameters": [body], "responses": {"200": scored}}, {"schema": {"type": "string"}})


def _paths() -> Mapping[str, Json]:
    taken, given = (
        {"application/json": {"schema": {"$ref": "#/components/schemas/" + name}}}
        for name in ("ServiceInput", "ServiceOutput")
    )
    scored: Mapping[str, Json] = {"description": "what run() returned", "content": given}
    text: Mapping[str, Json] = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    return _both({"requestBody": {"content": taken}, "responses": {"200": scored}}, text)


def _both(scoring: Mapping[str, Json], healthy: Mapping[str, Json]) -> Mapping[str, Json]:
    lives = {"description": "the model is loaded", **healthy}
    return {
        "/": {"get": {"operationId": "ServiceHealthCheck", "responses": {"200": lives}}},
        "/score": {"post": {"operationId": "RunMLService", "security": [{"Bearer": []}], **scoring}},
    }
