"""The table of runs: filtered and sorted by the server, page after page."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sqlalchemy import insert, update
from tests.unit.server.conftest import Server

from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.tracking.labels import number_in, set_params
from muster.server.tracking.recording import add_points
from muster.wire.runs import MetricPoint


def add_runs(server: Server, count: int = 30) -> None:
    chosen = random.Random(3)

    def work(transaction: Transaction) -> None:
        for number in range(count):
            row = {
                "id": f"run-{number:03}", "key": f"k{number}", "name": None, "display_name": f"Net {number % 7}",
                "experiment": f"e{number % 3}", "status": ("Completed", "Failed", "Running")[number % 3],
                "created_at": float(number), "started_at": float(number), "ended_at": float(number + number % 5),
                "spec": {}, "submitted_by": ("ada", "bob")[number % 2], "compute": "two", "priority": 0,
                "num_nodes": 1 + number % 4, "num_ranks": 1, "ranks_per_node": 1, "attempt": 0,
                "tags": {"team": "50%_done" if number == 5 else "vision"}, "notices": [],
                "description": "Größe" if number == 4 else None,
            }  # fmt: skip
            transaction.execute(insert(tables.runs).values(**row))
            if number % 4:
                set_params(
                    transaction, f"run-{number:03}", 1, {"lr": str(10.0 ** -(number % 6)), "opt": f"o{number % 3}"}
                )
            if number % 5:
                points = [MetricPoint("loss", chosen.random(), 0, 0, "rank_0", "scalar", 0.0, 1)]
                add_points(transaction, f"run-{number:03}", points)

    server.write(work)


def listed(server: Server, query: str) -> list[Any]:
    """All pages of a list."""
    found: list[Any] = []
    path: str | None = f"/summaries?limit=7&{query}"
    while path:
        status, items = server.call("GET", path)
        assert status == 200, items
        found += items
        path = server.link
    return found


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ("experiment=e1", lambda run: run["experiment"] == "e1"),
        ("person=bob&status=Failed", lambda run: run["submitted_by"] == "bob" and run["status"] == "Failed"),
        ("text=BOB+e1", lambda run: run["experiment"] == "e1" and run["submitted_by"] == "bob"),
        ("text=50%25_", lambda run: run["id"] == "run-005"),
        ("text=%25", lambda run: run["id"] == "run-005"),
        ("text=50/", lambda run: False),
        ("text=RUN-00", lambda run: run["id"] < "run-010"),
        ("text=gr%C3%B6%C3%9Fe", lambda run: run["id"] == "run-004"),
        ("tag=team=vision", lambda run: run["id"] != "run-005"),
        ("since=20", lambda run: run["created_at"] >= 20),
        ("cluster=none", lambda run: False),
    ],
)
def test_runs_are_filtered(server: Server, query: str, fits: Any) -> None:
    add_runs(server)
    everything = listed(server, "")
    assert [run["id"] for run in listed(server, query)] == [run["id"] for run in everything if fits(run)]


@pytest.mark.parametrize("ascending", ["true", "false"])
@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("sort=duration", lambda run: run["ended_at"] - run["started_at"]),
        ("sort=name", lambda run: run["display_name"]),
        ("sort=nodes", lambda run: run["num_nodes"]),
        ("sort=created", lambda run: run["created_at"]),
        ("param=lr", lambda run: float(run["params"]["lr"]) if "lr" in run["params"] else None),
        ("param=opt", lambda run: run["params"].get("opt")),
        ("metric=loss&by=last", lambda run: run["metrics"]["loss"]["last"] if "loss" in run["metrics"] else None),
    ],
)
def test_runs_are_sorted_over_all_pages(server: Server, query: str, value: Any, ascending: str) -> None:
    add_runs(server)
    found = listed(server, f"{query}&ascending={ascending}")
    assert sorted(run["id"] for run in found) == [f"run-{number:03}" for number in range(30)]
    values = [value(run) for run in found]
    known = [item for item in values if item is not None]
    assert values == [*known, *[None] * (len(values) - len(known))], "runs without a value come last"
    assert known == sorted(known, reverse=ascending == "false")


@pytest.mark.parametrize("other", ["sort=nodes", "sort=name", "", "sort=created&ascending=true"])
def test_a_cursor_of_another_order_is_refused_or_goes_on(server: Server, other: str) -> None:
    add_runs(server)
    server.call("GET", "/summaries?limit=7&sort=name&ascending=true")
    assert server.link is not None
    cursor = server.link.split("cursor=")[1].split("&")[0]
    status, found = server.call("GET", f"/summaries?limit=7&{other}&cursor={cursor}")
    assert status == (200 if other == "sort=name" else 422), found


def test_an_answer_is_good_until_something_changes(server: Server) -> None:
    add_runs(server, 3)
    # The first call makes the owner's token, and notes that it is used.
    server.call("GET", "/me")
    server.write(lambda _: None)
    tag = server.context.answers.tag(server.context.database.writer.commits)
    assert server.status("GET", "/summaries", if_none_match=tag) == 304
    assert len(server.context.answers.kept) == 0
    server.call("GET", "/summaries")
    assert server.context.answers.known("", tag) is not None
    server.call("PATCH", "/runs/run-001", {"tags": {"a": "b"}})
    # Somebody who asks once hears the truth; somebody who asks all the time may hear of it a moment later.
    assert server.call("GET", "/summaries")[1][1]["tags"]["a"] == "b"
    assert server.status("GET", "/summaries", if_none_match=tag) == 200


def test_what_runs_can_be_filtered_by_is_counted(server: Server) -> None:
    add_runs(server, 10)
    _, found = server.call("GET", "/facets")
    assert found["experiments"] == [{"value": "e0", "runs": 4}, {"value": "e1", "runs": 3}, {"value": "e2", "runs": 3}]
    assert {one["value"] for one in found["people"]} == {"ada", "bob"}
    assert server.call("GET", "/facets")[1] == found
    server.write(lambda transaction: transaction.execute(update(tables.runs).values(experiment="e9")))
    assert server.call("GET", "/facets")[1]["experiments"] == [{"value": "e9", "runs": 10}], "kept until a change"


@pytest.mark.parametrize(
    ("text", "number"), [("0.1", 0.1), ("1e-4", 1e-4), ("nan", None), ("inf", None), ("adam", None), ("9" * 100, None)]
)
def test_parameters_that_are_numbers(text: str, number: float | None) -> None:
    assert number_in(text) == number
