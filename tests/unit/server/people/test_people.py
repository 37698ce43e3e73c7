"""People over REST: what each role may do, and what they try all the same."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from fastapi.routing import APIRoute
from sqlalchemy import select, text
from sqlalchemy.exc import DatabaseError
from tests.unit.server.conftest import Server

from muster.control.access import Action, Caller
from muster.server.database import tables
from muster.server.http.app import ROUTERS
from muster.server.http.needs import actions_of
from muster.server.people import audit, tokens
from muster.server.people.persons import login_name

SPEC = {"command": "python train.py", "compute": "two"}
WITHOUT_TOKEN = {"/health", "/join", "/sign-in", "/sso"}


class Person:
    """Somebody with a token."""

    def __init__(self, server: Server, name: str, role: str) -> None:
        self.server, self.name = server, name
        assert server.call("POST", "/people", {"name": name, "role": role})[0] == 201
        self.token: str = server.call("POST", "/tokens", {"person": name})[1]["token"]

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        raw = b"" if body is None else json.dumps(body).encode()
        return self.server.call_bytes(method, path, raw, authorization=f"Bearer {self.token}")

    def submit(self, key: str = "k", **spec: Any) -> str:
        status, view = self.call("POST", "/runs", {"key": key, "spec": {**SPEC, **spec}, "submitted_by": "root"})
        assert status == 201, view
        assert view["submitted_by"] == self.name
        return str(view["id"])


@pytest.fixture(autouse=True)
def nothing_recent() -> None:
    audit._recent.clear()


@pytest.fixture(autouse=True)
def accepted(server: Server) -> None:
    """The administrator lets ranks of everybody run as the server's account."""
    server.context.isolation = "none"


@pytest.fixture
def ada(server: Server) -> Person:
    return Person(server, "ada", "member")


@pytest.fixture
def eve(server: Server) -> Person:
    return Person(server, "eve", "member")


@pytest.fixture
def bob(server: Server) -> Person:
    return Person(server, "bob", "reader")


def routes() -> list[APIRoute]:
    return [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]


def test_every_route_says_what_it_needs() -> None:
    silent = [route.path for route in routes() if not list(actions_of(route.dependant))]
    assert set(silent) == WITHOUT_TOKEN


def test_the_document_lists_the_same_routes(server: Server) -> None:
    documented = server.call("GET", "/openapi.json")[1]["paths"]
    assert documented.keys() == {f"/api/v1{route.path_format}" for route in routes() if route.include_in_schema}


def test_a_route_that_says_nothing_is_an_administrators(server: Server, ada: Person, monkeypatch: Any) -> None:
    monkeypatch.setattr("muster.server.http.needs.SAYS", "nothing")
    assert ada.call("GET", "/runs")[0] == 403
    assert server.call("GET", "/runs")[0] == 200


def test_a_reader_tries_everything(server: Server, ada: Person, bob: Person) -> None:
    run = ada.submit()
    allowed = {Action.READ, Action.READ_CODE, Action.READ_DATA, Action.MANAGE_TOKEN}
    tried = 0
    for route in routes():
        needed = set(actions_of(route.dependant))
        if not needed or needed <= allowed:
            continue
        path = route.path.replace("{ref}", run).replace(":path}", "}")
        for part in ("name", "node", "store", "path", "grant_id", "checkpoint", "part"):
            path = path.replace(f"{{{part}}}", "1" if part in ("checkpoint", "part") else "x")
        for method in route.methods or ():
            body = {"runs": [run]} if path == "/runs/cancel" else {}
            status, answer = bob.call(method, path, body)
            tried += 1
            # A body that is wrong is refused before it is asked who sends it.
            assert status in (403, 422), (method, path, status, answer)
    assert tried > 30
    assert bob.call("POST", "/runs", {"key": "b", "spec": SPEC})[0] == 403
    assert bob.call("GET", f"/runs/{run}")[0] == 200
    assert server.call("GET", f"/runs/{run}")[1]["status"] == "Queued"


def test_a_member_on_anothers_run(server: Server, ada: Person, eve: Person) -> None:
    run = ada.submit(display_name="first")
    attempts: list[tuple[str, str, Any]] = [
        ("POST", f"/runs/{run}/cancel", {}), ("POST", "/runs/cancel", {"runs": [run]}),
        ("POST", "/runs/@latest/cancel", {}), ("POST", "/runs/first/cancel", {}),
        ("POST", f"/runs/{run[:-2]}/cancel", {}), ("PATCH", f"/runs/{run}", {"tags": {"a": "b"}}),
        ("POST", f"/runs/{run}/retry", None), ("DELETE", f"/runs/{run}", None),
        ("POST", f"/runs/{run}/metrics", {"points": [{"name": "loss", "value": 1.0, "at": 1.0}]}),
        ("PUT", f"/runs/{run}/files/outputs/x", {}),
    ]  # fmt: skip
    for method, path, body in attempts:
        status, answer = eve.call(method, path, body)
        assert (status, answer["error"]["code"]) == (403, "access_denied"), path
    assert ada.call("GET", f"/runs/{run}")[1]["status"] == "Queued"
    mine = eve.submit("mine")
    assert eve.call("POST", "/runs/cancel", {"runs": [mine, run]})[0] == 403
    assert ada.call("GET", f"/runs/{mine}")[1]["status"] == "Queued", "all of them, or none"
    assert ada.call("POST", f"/runs/{run}/cancel", {})[0] == 200
    assert server.call("POST", f"/runs/{mine}/cancel", {})[0] == 200


def test_secrets_are_their_owners(server: Server, ada: Person, eve: Person) -> None:
    assert ada.call("PUT", "/secrets/HF", {"value": "of ada's"})[1]["owner"] == "ada"
    assert eve.call("PUT", "/secrets/HF", {"value": "of eve's"})[0] == 403
    assert eve.call("DELETE", "/secrets/HF")[0] == 403
    uses = {"environment_variables": {"T": "${{secrets.HF}}"}}
    status, answer = eve.call("POST", "/runs", {"key": "s", "spec": {**SPEC, **uses}})
    assert status == 403 and "belongs to ada" in answer["error"]["message"]
    ada.submit("a", **uses)
    assert ada.call("PUT", "/secrets/HF", {"value": "of all's", "shared": True})[0] == 201
    eve.submit("e", **uses)
    assert ada.call("DELETE", "/secrets/HF")[0] == 204


def test_a_secret_that_became_anothers_reaches_no_queued_run(server: Server, ada: Person, eve: Person) -> None:
    from muster.errors import AccessDenied
    from muster.server.people import secrets

    ada.call("PUT", "/secrets/HF", {"value": "of ada's"})
    ada.submit(environment_variables={"T": "${{secrets.HF}}"})
    ada.call("DELETE", "/secrets/HF")
    eve.call("PUT", "/secrets/HF", {"value": "of eve's"})
    with pytest.raises(AccessDenied):
        server.context.database.read_now(lambda c: secrets.values(server.context, c, ["HF"], "ada"))


def test_datastores_and_grants_are_their_owners(server: Server, ada: Person, eve: Person) -> None:
    body = {"name": "s3", "kind": "fsspec", "options": {"url": "memory://x"}}
    assert server.call("POST", "/datastores", body)[1]["owner"] == login_name()
    body["name"] = "mine"
    assert server.call("POST", "/datastores", body)[0] == 201
    for name in ("s3", "mine"):
        assert eve.call("POST", "/datastores?replace=1", {**body, "name": name})[0] == 403
        assert eve.call("DELETE", f"/datastores/{name}")[0] == 403
    grant = ada.call("POST", "/grants", {"address": "azureml://datastores/mine/paths/x"})[1]["id"]
    assert eve.call("DELETE", f"/grants/{grant}")[0] == 403
    assert ada.call("DELETE", f"/grants/{grant}")[0] == 204


def test_members_manage_neither_people_nor_clusters_nor_the_workspace(ada: Person) -> None:
    attempts: list[tuple[str, str, Any]] = [
        ("POST", "/people", {"name": "mallory", "role": "admin"}), ("PATCH", "/people/ada", {"role": "admin"}),
        ("POST", "/people/ada/invite", {}), ("DELETE", "/people/ada", None), ("GET", "/audit", None),
        ("POST", "/clusters", {"name": "c", "engine": "local", "options": {}}), ("DELETE", "/clusters/two", None),
        ("POST", "/shutdown", {}), ("POST", "/gc", {}), ("POST", "/encryption/rotate-secrets", None),
        ("POST", "/agents/hello", {}), ("GET", "/agents/two-0/orders?agent=a", None),
        ("POST", "/tokens", {"person": login_name()}),
    ]  # fmt: skip
    for method, path, body in attempts:
        assert ada.call(method, path, body)[0] in (403, 422), path
    assert ada.call("GET", "/me")[1] == {"name": "ada", "role": "member", "workspace": "w", "shared": True}


def test_tokens_are_listed_rotated_and_revoked(server: Server, ada: Person, eve: Person) -> None:
    made = ada.call("POST", "/tokens", {"label": "laptop", "role": "reader", "lifetime_s": 60})[1]
    assert (made["role"], made["person"], made["label"]) == ("reader", "ada", "laptop")
    listed = ada.call("GET", "/tokens")[1]
    assert {item["person"] for item in listed} == {"ada"} and len(listed) == 2
    assert all("token" not in item for item in listed)
    for method, path in (("POST", f"/tokens/{made['id']}/rotate"), ("DELETE", f"/tokens/{made['id']}")):
        assert eve.call(method, path)[0] == 404, "it looks as if there were none"
    fresh = ada.call("POST", f"/tokens/{made['id']}/rotate")[1]
    assert fresh["token"] != made["token"] and fresh["label"] == "laptop"
    old, new = Tokened(server, made["token"]), Tokened(server, fresh["token"])
    assert (old.call("GET", "/me"), new.call("GET", "/me")) == (403, 200)
    assert new.call("POST", "/tokens", {"role": "admin"}) == 201
    widest = {item["role"] for item in ada.call("GET", "/tokens")[1] if item["id"] != listed[0]["id"]}
    assert widest == {"reader"}, "a token makes no wider one"
    assert ada.call("DELETE", f"/tokens/{fresh['id']}")[0] == 204
    assert new.call("GET", "/me") == 403
    assert {item["person"] for item in server.call("GET", "/tokens?everybody=1")[1]} >= {"ada", "eve"}
    assert {item["person"] for item in eve.call("GET", "/tokens?everybody=1")[1]} == {"eve"}


def test_a_token_is_named_by_its_label_too(ada: Person, eve: Person) -> None:
    for person in (ada, eve):
        assert person.call("POST", "/tokens", {"label": "ci"})[0] == 201
    assert ada.call("POST", "/tokens/ci/rotate")[1]["person"] == "ada"
    ada.call("POST", "/tokens", {"label": "ci"})
    assert ada.call("DELETE", "/tokens/ci")[0] == 409
    assert eve.call("DELETE", "/tokens/ci")[0] == 204
    assert eve.call("DELETE", "/tokens/ci")[0] == 404


def test_of_two_who_rotate_one_token_one_gets_it(server: Server, ada: Person) -> None:
    made = ada.call("POST", "/tokens", {"label": "ci"})[1]["id"]
    caller, gate = Caller("member", "ada"), threading.Event()
    database = server.context.database
    database.submit(lambda _: gate.wait(5))
    both = [database.submit(lambda t: tokens.rotate(server.context.tokens, t, made, caller)) for _ in range(2)]
    gone = database.submit(lambda t: tokens.revoke(server.context.tokens, t, made, caller))
    gate.set()
    assert [future.exception(5) is None for future in (*both, gone)] == [True, False, False]
    assert len([item for item in ada.call("GET", "/tokens")[1] if item["label"] == "ci"]) == 1


class Tokened:
    """Somebody with this token."""

    def __init__(self, server: Server, token: str) -> None:
        self.server, self.token = server, token

    def call(self, method: str, path: str, body: Any = None) -> int:
        raw = b"" if body is None else json.dumps(body).encode()
        return self.server.call_bytes(method, path, raw, authorization=f"Bearer {self.token}")[0]


def test_the_folders_own_token_is_not_revoked_by_mistake(server: Server) -> None:
    mine = next(item for item in server.call("GET", "/tokens")[1])
    assert server.call("DELETE", f"/tokens/{mine['id']}")[0] == 409
    assert server.call("POST", f"/tokens/{mine['id']}/rotate")[0] == 409


def test_an_invitation_is_good_for_one_use(server: Server) -> None:
    server.call("POST", "/people", {"name": "ada", "role": "member"})
    first = server.call("POST", "/people/ada/invite", {})[1]["token"]
    second = server.call("POST", "/people/ada/invite", {})[1]["token"]
    assert join(server, first)[0] == 403, "an earlier one ended"
    assert Tokened(server, second).call("GET", "/me") == 403, "it is no token"
    status, made = join(server, second)
    assert (status, made["person"], made["role"]) == (201, "ada", "member")
    assert Tokened(server, made["token"]).call("GET", "/runs") == 200
    assert join(server, second)[0] == 403
    for forged in ("", "muster_invite_", made["token"], second[:-1], "muster_invite_" + "A" * 43):
        assert join(server, forged)[0] == 403


def test_an_invitation_expires_and_ends_with_its_person(server: Server) -> None:
    server.call("POST", "/people", {"name": "ada", "role": "member"})
    late = server.call("POST", "/people/ada/invite", {"lifetime_s": 1e-6})[1]["token"]
    assert join(server, late)[0] == 403
    invite = server.call("POST", "/people/ada/invite", {})[1]["token"]
    server.call("PATCH", "/people/ada", {"disabled": True})
    assert join(server, invite)[0] == 403
    assert server.call("POST", "/people/ada/invite", {})[0] == 409
    server.call("DELETE", "/people/ada")
    assert join(server, invite)[0] == 403


def join(server: Server, invite: str) -> tuple[int, Any]:
    return server.call_bytes("POST", "/join", json.dumps({"invite": invite}).encode(), authorization="")


@pytest.mark.parametrize(
    "name",
    ["", "Ada", "ada ", "a/b", "../x", "ada\n", "a" * 65, "аda", "ada\u202e", "-x", "@latest", "a\0b", login_name()],
)
def test_tricks_with_names_are_refused(server: Server, name: str) -> None:
    assert server.call("POST", "/people", {"name": name, "role": "member"})[0] in (409, 422)


def test_a_role_that_there_is_not_is_refused(server: Server, ada: Person) -> None:
    for role in ("agent", "run", "grant", "owner", "", "ADMIN"):
        assert server.call("POST", "/people", {"name": "x", "role": role})[0] == 422
        assert server.call("PATCH", "/people/ada", {"role": role})[0] == 422
        assert ada.call("POST", "/tokens", {"role": role})[0] == 422


def test_ranks_of_members_do_not_run_as_the_servers_account_unless_accepted(server: Server, ada: Person) -> None:
    server.context.isolation = ""
    status, answer = ada.call("POST", "/runs", {"key": "i", "spec": SPEC})
    assert status == 403 and "read the workspace's keys" in answer["error"]["message"]
    image = {**SPEC, "environment": {"image": "docker.io/library/python:3.11"}}
    assert ada.call("POST", "/runs", {"key": "c", "spec": image})[0] == 201
    for given in ("-v /:/host", "--privileged", "--pid=host", "--shm-size 1g"):
        opened = {**image, "resources": {"docker_args": given}}
        assert ada.call("POST", "/runs", {"key": given, "spec": opened})[0] in (403, 422)
    assert server.call("POST", "/runs", {"key": "o", "spec": SPEC})[0] == 201


def test_quotas_count_the_tokens_person(server: Server, ada: Person, eve: Person) -> None:
    ada.submit("a")
    eve.submit("e")
    rows = server.context.database.read_now(lambda c: c.execute(select(tables.runs.c.submitted_by)).scalars().all())
    assert sorted(rows) == ["ada", "eve"]


def test_what_people_do_is_recorded_with_it(server: Server, ada: Person, eve: Person) -> None:
    run = ada.submit()
    eve.call("POST", f"/runs/{run}/cancel", {})
    ada.call("PUT", "/secrets/HF", {"value": "hush, hush"})
    ada.call("GET", f"/runs/{run}")
    ada.call("POST", f"/runs/{run}/cancel", {})
    server.call("PATCH", "/people/eve", {"role": "reader"})
    found = server.call("GET", "/audit")[1]
    seen = [(item["who"], item["action"], item["target"], item["outcome"]) for item in reversed(found)]
    assert seen[-5:] == [
        ("ada", "run.submit", run, "done"),
        ("eve", "run.cancel", run, "refused"),
        ("ada", "secret.set", "HF", "done"),
        ("ada", "run.cancel", run, "done"),
        (login_name(), "people.change", "eve", "done"),
    ]
    assert found[0]["detail"] == "role reader"
    assert "hush" not in json.dumps(found) and ada.token not in json.dumps(found)
    assert {item["who"] for item in server.call("GET", "/audit?who=ada")[1]} == {"ada"}


def test_a_change_that_fails_leaves_no_line(server: Server, ada: Person) -> None:
    before = len(server.call("GET", "/audit")[1])
    assert ada.call("POST", "/runs", {"key": "x", "spec": {**SPEC, "compute": "none"}})[0] == 422
    assert ada.call("DELETE", "/secrets/NONE")[0] == 404
    assert len(server.call("GET", "/audit")[1]) == before


def test_the_audit_log_is_only_added_to(server: Server, ada: Person) -> None:
    ada.submit()
    for statement in ("DELETE FROM audit", "UPDATE audit SET who = 'nobody'"):
        with pytest.raises((DatabaseError, Exception), match="only added to"):
            server.write(lambda t, statement=statement: t.execute(text(statement)))
    assert server.call("DELETE", "/audit")[0] in (404, 405)


def test_a_flood_of_refusals_fills_no_disk(server: Server, bob: Person) -> None:
    for _ in range(20):
        assert bob.call("POST", "/gc", {})[0] == 403
    refused = [item for item in server.call("GET", "/audit?who=bob")[1] if item["outcome"] == "refused"]
    assert len(refused) == 1


def test_the_audit_log_comes_in_pages(server: Server, ada: Person) -> None:
    for key in "abcde":
        ada.submit(key)
    whole = [item["id"] for item in server.call("GET", "/audit")[1]]
    pages, path = [], "/audit?limit=2"
    while path:
        pages += [item["id"] for item in server.call("GET", path)[1]]
        path = server.link or ""
    assert pages == whole and len(whole) >= 5


def test_an_endpoint_is_opened_to_other_networks_by_an_administrator_alone(server: Server, ada: Person) -> None:
    body = {"name": "digits", "host": "0.0.0.0"}
    assert ada.call("POST", "/endpoints", body)[0] == 403
    assert ada.call("POST", "/endpoints", {"name": "inside"})[0] == 201
    assert server.call("POST", "/endpoints", body)[0] == 201
