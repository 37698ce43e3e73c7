"""Who is told of what: receivers, rights, and events that become notifications once."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select
from tests.unit.server.conftest import Server
from tests.unit.server.people.test_people import Person

from muster.server.database import tables
from muster.server.database.records import RUN, add_note, move_run
from muster.server.notifications import delivery, outbox, subscriptions
from muster.server.notifications.errands import HttpErrand, Outcome, SmtpSettings
from muster.wire.codec import from_json
from muster.wire.notifications.events import Notification

HOOK = {"name": "hook", "address": "https://example.org/hook/secret-part"}


@pytest.fixture(autouse=True)
def accepted(server: Server) -> None:
    server.context.isolation = "none"


@pytest.fixture
def ada(server: Server) -> Person:
    return Person(server, "ada", "member")


@pytest.fixture
def eve(server: Server) -> Person:
    return Person(server, "eve", "member")


def told(server: Server) -> list[tuple[str, str]]:
    """Events and runs of which somebody is told, in their order; made of what is new."""
    while server.write(lambda t: outbox.gather(server.context, t)):
        pass
    query = select(tables.deliveries).order_by(tables.deliveries.c.created_at, tables.deliveries.c.id)
    rows = server.context.database.read_now(lambda c: c.execute(query).all())
    return [(row.event, row.run_id) for row in rows]


def end(server: Server, run: str, status: Any = "Failed") -> None:
    server.write(lambda t: move_run(t, run, status, ended_at=2e10))


def test_a_receiver_hears_of_its_owners_runs_once(server: Server, ada: Person, eve: Person) -> None:
    assert ada.call("POST", "/notifications", HOOK)[0] == 201
    mine, other = ada.submit("a"), eve.submit("e")
    for run in (mine, other):
        end(server, run)
    assert told(server) == [("fails", mine)]
    assert told(server) == [("fails", mine)]


def test_a_job_names_whom_it_tells_and_of_what(server: Server, ada: Person) -> None:
    run = ada.submit("a", notify=["https://example.org/a", {"to": "https://example.org/b", "when": "starts"}])
    server.write(lambda t: move_run(t, run, "Running"))
    server.write(lambda t: add_note(t, run, "warning", "loss of rank 0 is not a number since step 3 (NaN): …"))
    end(server, run, "Completed")
    assert sorted(told(server)) == [("completes", run), ("nan", run), ("starts", run)]


def test_nobody_is_told_twice_of_the_same(server: Server, ada: Person) -> None:
    ada.call("POST", "/notifications", {**HOOK, "runs": "all"})
    run = ada.submit("a", notify="hook")
    end(server, run)
    assert told(server) == [("fails", run)]


def test_a_receiver_hears_nothing_of_what_was_before_it(server: Server, ada: Person) -> None:
    ada.call("POST", "/notifications", {"name": "first", "address": "https://example.org/1"})
    run = ada.submit("a")
    server.write(lambda t: move_run(t, run, "Failed", ended_at=1.0))
    ada.call("POST", "/notifications", HOOK)
    hooks = [item for item in ada.call("GET", "/notifications")[1] if item["name"] == "hook"]
    told(server)
    assert hooks[0]["waiting"] == 0 and "last" not in hooks[0]


def test_a_run_that_stands_still_is_told_of_once(server: Server, ada: Person) -> None:
    run = ada.submit("a", notify={"to": "https://example.org/a", "quiet_s": 60})
    told(server)
    server.write(lambda t: RUN.set(t, run, status="Running", started_at=1.0))
    server.context.runs.moved[run] = 1000.0
    for _ in range(3):
        server.write(lambda t: outbox.look_for_silence(server.context, t))
    assert told(server) == [("hangs", run)]
    notes = [row.data["text"] for row in server.context.database.read_now(
        lambda c: c.execute(select(tables.events).where(tables.events.c.kind == "note")).all())]  # fmt: skip
    assert len([text for text in notes if "seems to hang" in text]) == 1


def test_addresses_are_sealed_and_secrets_shown_once(server: Server, ada: Person) -> None:
    secret = ada.call("POST", "/notifications", HOOK)[1]["secret"]
    assert secret.startswith("whsec_")
    (shown,) = ada.call("GET", "/notifications")[1]
    assert shown["address"] == "https://example.org/…" and "secret" not in shown
    row = server.context.database.read_now(lambda c: subscriptions.find(c, "hook"))
    assert "secret-part" not in row.sealed
    assert server.call("POST", "/encryption/rotate-secrets")[0] in (200, 409)
    row = server.context.database.read_now(lambda c: subscriptions.find(c, "hook"))
    assert subscriptions.target_of(server.context, row)[1] == secret


def test_people_see_and_change_their_own(server: Server, ada: Person, eve: Person) -> None:
    ada.call("POST", "/notifications", HOOK)
    assert eve.call("GET", "/notifications")[1] == []
    assert eve.call("DELETE", "/notifications/hook")[0] == 403
    assert eve.call("POST", "/notifications/hook/test")[0] == 403
    run = eve.submit("e")
    assert eve.call("POST", f"/runs/{run}/notifications", {"to": "hook"})[0] == 403
    status, answer = eve.call(
        "POST", "/runs", {"key": "n", "spec": {"command": "true", "compute": "two", "notify": "hook"}}
    )
    assert status == 403 and "it belongs to ada" in answer["error"]["message"]
    assert Person(server, "bob", "reader").call("POST", "/notifications", {**HOOK, "name": "b"})[0] == 403
    assert ada.call("DELETE", "/notifications/hook")[0] == 204
    assert ada.call("DELETE", "/notifications/hook")[0] == 404


def test_what_cannot_be_told_is_refused_before_anything_starts(server: Server, ada: Person) -> None:
    for notify, said in (
        ("nobody", "no receiver 'nobody'"),
        ("mailto:a@b.org", "sends no mail yet"),
        ("foo://x", "address"),
    ):
        spec = {"command": "true", "compute": "two", "notify": notify}
        status, answer = ada.call("POST", "/runs", {"key": notify, "spec": spec})
        assert status in (404, 409, 422) and said in answer["error"]["message"]
    assert ada.call("GET", "/runs")[1] == []
    assert ada.call("POST", "/notifications", {**HOOK, "when": ["explodes"]})[0] == 422


def test_only_administrators_reach_the_servers_own_network(server: Server, ada: Person) -> None:
    server.context.notifications.smtp = SmtpSettings("h", "m@h")
    ada.call("POST", "/notifications", HOOK)
    server.call("POST", "/notifications", {**HOOK, "name": "owners"})
    said = Notification("i", "test", 1.0, "t", "", "w", None)
    rows = {
        name: server.context.database.read_now(lambda c, name=name: subscriptions.find(c, name))
        for name in ("hook", "owners")
    }
    made = {name: delivery._prepare(server.context, row, said) for name, row in rows.items()}
    assert isinstance(made["hook"], HttpErrand) and made["hook"].allowed == ()
    assert isinstance(made["owners"], HttpErrand) and made["owners"].allowed is None


def test_those_who_were_locked_out_hear_nothing(server: Server, ada: Person) -> None:
    ada.call("POST", "/notifications", {**HOOK, "runs": "all"})
    run = ada.submit("a")
    server.call("PATCH", "/people/ada", {"disabled": True})
    end(server, run)
    assert told(server) == []


def test_what_was_not_taken_waits_longer_each_time(server: Server, ada: Person) -> None:
    run = ada.submit("a", notify="https://example.org/a")
    end(server, run)
    told(server)
    table = tables.deliveries

    def row() -> Any:
        return server.context.database.read_now(lambda c: c.execute(select(table)).one())

    waits = []
    for tries in range(1, 4):
        known = row()
        server.write(lambda t, known=known: delivery._record(t, [known], [Outcome(known.id, False, "HTTP 500")]))
        waits.append(round(row().due_at - known.created_at))
        assert (row().tries, row().answer, row().given_up) == (tries, "HTTP 500", False)
    assert waits == sorted(waits) and waits[-1] >= 60
    known = row()
    server.write(lambda t: delivery._record(t, [known], [Outcome(known.id, True, "HTTP 204")]))
    assert (row().due_at, row().taken_at is not None) == (None, True)
    assert from_json(Notification, row().body).id == row().id


def test_a_run_that_is_removed_takes_its_watches_along(server: Server, ada: Person) -> None:
    run = ada.submit("a", notify="https://example.org/a")
    end(server, run)
    assert ada.call("GET", f"/runs/{run}/notifications")[1][0]["address"] == "https://example.org/…"
    assert ada.call("DELETE", f"/runs/{run}")[0] in (200, 204)
    rows = server.context.database.read_now(lambda c: c.execute(select(tables.subscriptions)).all())
    assert rows == []
