"""The page `/api/v1/docs`: every call of the REST API, from its OpenAPI document. It loads nothing from other hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c1e21 }
h2 { margin-top: 2rem; border-bottom: 1px solid #d0d7de } code, pre { font: 13px/1.45 ui-monospace, monospace }
summary { cursor: pointer; padding: .25rem 0 } summary b { display: inline-block; width: 4.5rem }
pre { background: #f6f8fa; padding: .75rem; overflow-x: auto } td { padding: 0 1rem .25rem 0; vertical-align: top }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #e4e6eb } pre { background: #22252a } }
"""


def docs_page(document: Mapping[str, Any]) -> str:
    """The page of an OpenAPI document."""
    info = document["info"]
    title = f"{info['title']} {info['version']}: REST API"
    parts = "\n".join([*_calls(document), *_messages(document)])
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        "<p>The same for programs: <a href='openapi.json'>openapi.json</a>. Calls carry "
        f"<code>Authorization: Bearer TOKEN</code>.</p>{parts}</body></html>"
    )


def _calls(document: Mapping[str, Any]) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            by_tag.setdefault(next(iter(call.get("tags", ())), "other"), []).append(_call(path, method, call))
    for tag, calls in by_tag.items():
        yield f"<h2>{escape(tag)}</h2>{''.join(calls)}"


def _call(path: str, method: str, call: Mapping[str, Any]) -> str:
    rows = [(item["name"], item["in"], _type(item.get("schema", {}))) for item in call.get("parameters", ())]
    rows += [("", "body", _type(found)) for found in _schemas(call.get("requestBody", {}))]
    for status, answer in call.get("responses", {}).items():
        rows += [("", f"answer {status}", _type(found) or answer.get("description", "")) for found in _schemas(answer)]
    table = "".join(f"<tr>{''.join(f'<td><code>{escape(cell)}</code></td>' for cell in row)}</tr>" for row in rows)
    summary = escape(call.get("description") or call.get("summary") or "")
    return (
        f"<details><summary><b>{escape(method.upper())}</b> <code>{escape(path)}</code> {summary}</summary>"
        f"<table>{table}</table></details>"
    )


def _schemas(part: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for content in part.get("content", {}).values():
        yield content.get("schema", {})


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(filter(None, map(_type, schema["anyOf"])))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", ""))


def _messages(document: Mapping[str, Any]) -> Iterator[str]:
    schemas = document.get("components", {}).get("schemas", {})
    if schemas:
        yield "<h2>Messages</h2>"
    for name, schema in sorted(schemas.items()):
        shown = escape(json.dumps(schema, indent=2))
        yield f"<details><summary><code>{escape(name)}</code></summary><pre>{shown}</pre></details>"
