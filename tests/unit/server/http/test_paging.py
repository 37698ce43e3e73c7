"""Lists in pages: nothing is left out or repeated, whatever comes and goes between two pages."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from sqlalchemy import delete, insert
from tests.unit.server.conftest import Server

from muster.server.database import tables


def add_runs(server: Server, numbers: range, **columns: Any) -> None:
    row = {
        "experiment": "e", "status": "Completed", "created_at": 0.0, "spec": {}, "compute": "two", "priority": 0,
        "num_nodes": 1, "num_ranks": 1, "ranks_per_node": 1, "attempt": 0, "tags": {}, "notices": [], **columns,
    }  # fmt: skip
    rows = [{**row, "id": f"r-{number}", "key": f"k-{number}"} for number in numbers]
    server.write(lambda transaction: transaction.execute(insert(tables.runs), rows))


def pages(server: Server, path: str) -> list[list[Any]]:
    found = []
    link: str | None = path
    while link:
        status, page = server.call("GET", link)
        assert status == 200, page
        found.append(page)
        link = server.link
    return found


def test_every_run_is_on_one_page(server: Server) -> None:
    add_runs(server, range(25))
    found = pages(server, "/runs?limit=10")
    assert [len(page) for page in found] == [10, 10, 5]
    assert [run["id"] for page in found for run in page] == [f"r-{number}" for number in reversed(range(25))]


def test_pages_keep_their_filters_and_what_comes_meanwhile_moves_nothing(server: Server) -> None:
    add_runs(server, range(6), experiment="mine")
    add_runs(server, range(6, 9), experiment="other")
    _, first = server.call("GET", "/runs?experiment=mine&limit=4")
    add_runs(server, range(9, 12), experiment="mine")
    server.write(lambda t: t.execute(delete(tables.runs).where(tables.runs.c.id == "r-2")))
    assert server.link is not None
    _, second = server.call("GET", server.link)
    assert [run["id"] for run in (*first, *second)] == ["r-5", "r-4", "r-3", "r-2", "r-1", "r-0"]


def test_lists_of_names_come_in_pages_too(server: Server) -> None:
    for name in ("c", "a", "b"):
        server.add_cluster(name)
        for version in (1, 2):
            row = {"name": name, "version": version, "path": "x", "tags": {}, "properties": {}, "created_at": 0.0}
            server.write(lambda t, row=row: t.execute(insert(tables.models), row))
    assert [[item["name"] for item in page] for page in pages(server, "/clusters?limit=3")] == [
        ["a", "b", "c"],
        ["two"],
    ]
    models = [(item["name"], item["version"]) for page in pages(server, "/models?limit=1") for item in page]
    assert models == [("a", 2), ("a", 1), ("b", 2), ("b", 1), ("c", 2), ("c", 1)]
    assert len(pages(server, "/datastores?limit=1")) == 1


def cursor_of(*parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


@pytest.mark.parametrize("path", ["/runs", "/models", "/clusters", "/secrets", "/assets", "/grants", "/environments"])
@pytest.mark.parametrize(
    "cursor",
    ["x", "%00", "!!!!", "e30", cursor_of(), cursor_of(1), cursor_of(1, 2), cursor_of(1, None), cursor_of(1, 2**70),
     cursor_of(1, [2]), "W" * 3000, "W" * 5000, "%F0%9F%90%99"],
)  # fmt: skip
def test_nonsense_is_no_cursor(server: Server, path: str, cursor: str) -> None:
    status, answer = server.call("GET", f"{path}?cursor={cursor}")
    assert status == 422
    assert "cursor" in answer["error"]["message"]


def test_a_cursor_of_another_list_is_refused(server: Server) -> None:
    add_runs(server, range(3))
    server.call("GET", "/runs?limit=1")
    assert server.link is not None
    status, answer = server.call("GET", server.link.replace("/runs", "/models"))
    assert (status, answer["error"]["message"]) == (422, "the cursor belongs to another list")
