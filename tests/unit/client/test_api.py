"""The client against a scripted server: retries, resuming, ranges."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sites.rest_server import Reply, Request, RestServer
from tests.sites.views import run_json, run_view, sse, sse_text

from muster.client import calls
from muster.client.api import Client
from muster.client.storage import Storage
from muster.defaults import PROTOCOL_VERSION
from muster.errors import Conflict, DiskFull, JobError, MusterError, NotFound, ServerUnavailable
from muster.host.http import Address
from muster.job.explain import make_spec
from muster.wire.stream import LogPiece, RunEnded

RUN = run_json()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "RETRY_PAUSES_S", (0.0, 0.0, 0.0))


@pytest.fixture
def server() -> Iterator[RestServer]:
    with RestServer() as running:
        running.on("GET", "/api/v1/runs/(r-1|@latest)", RUN)
        yield running


@pytest.fixture
def client(server: RestServer) -> Iterator[Client]:
    made = Client(Address(server.url, "secret"))
    yield made
    made.close()


def log(cursor: str, text: bytes) -> bytes:
    return sse(cursor, LogPiece.of(1, "user_logs/std_log.txt", 0, text))


def test_a_request_carries_the_token_and_the_protocol(server: RestServer, client: Client) -> None:
    client.run("r-1")
    assert server.requests[0].headers["Authorization"] == "Bearer secret"
    assert server.requests[0].headers["Muster-Protocol"] == str(PROTOCOL_VERSION)


def test_an_error_of_the_server_becomes_an_error_of_the_tree(server: RestServer, client: Client) -> None:
    error = {"code": "conflict", "message": "the run is Running", "hint": "Cancel it."}
    server.on("DELETE", "/api/v1/runs/r-1", Reply({"error": error}, status=409))
    with pytest.raises(Conflict, match="the run is Running"):
        client.remove("r-1")


@pytest.mark.parametrize("ref", ["", "a/b", ".."])
def test_a_reference_that_would_be_another_address_is_not_found(client: Client, ref: str) -> None:
    with pytest.raises(NotFound):
        client.run(ref)


def test_a_submission_whose_answer_was_lost_is_repeated_with_the_same_key(server: RestServer, client: Client) -> None:
    def lose_first(request: Request) -> Reply:
        posts = [seen for seen in server.requests if seen.method == "POST"]
        return Reply(pieces=[b'{"id"'], cut=True) if len(posts) == 1 else Reply(RUN)

    server.on("POST", "/api/v1/runs", lose_first)
    assert client.submit(make_spec({"command": ["true"]})) == run_view()
    first, second = [request.json["key"] for request in server.requests]
    assert first == second


@pytest.mark.parametrize("reply", [Reply(status=503), Reply(body=b"Internal Server Error", status=500)])
def test_a_refusal_that_says_nothing_is_a_server_that_is_away(server: RestServer, client: Client, reply: Reply) -> None:
    replies = [reply, Reply(RUN, status=201)]
    server.on("POST", "/api/v1/runs", lambda _: replies.pop(0))
    client.submit(make_spec({"command": "true"}))
    first, second = (request.json["key"] for request in server.requests)
    assert first == second


def test_a_fault_that_the_server_explains_is_not_repeated(server: RestServer, client: Client) -> None:
    error = {"code": "disk_full", "message": "the disk is full", "hint": "Free some space."}
    server.on("POST", "/api/v1/runs", Reply({"error": error}, status=507))
    with pytest.raises(DiskFull, match="the disk is full"):
        client.submit(make_spec({"command": "true"}))
    assert len(server.requests) == 1


def test_what_must_not_happen_twice_is_not_repeated(server: RestServer, client: Client) -> None:
    server.on("POST", "/api/v1/clusters", lambda request: Reply(pieces=[b"{"], cut=True))
    with pytest.raises(ServerUnavailable, match="broke off"):
        client.create_cluster("c")
    assert len(server.requests) == 1


def test_a_submission_carries_the_whole_job(server: RestServer, client: Client) -> None:
    server.on("POST", "/api/v1/runs", RUN)
    client.submit(make_spec({"command": "echo hi"}), snapshot="abc", python="/usr/bin/python3", notices=["n"])
    body = server.requests[0].json
    assert body["spec"]["command"] == "echo hi"
    assert (body["snapshot"], body["python"], body["notices"]) == ("abc", "/usr/bin/python3", ["n"])
    assert body["key"]


def test_a_dead_server_is_found_again(server: RestServer) -> None:
    client = Client(Address("unix:/nonexistent/socket"), reconnect=lambda: Address(server.url))
    assert client.run("r-1") == run_view()
    client.close()


def test_without_a_way_to_find_it_again_a_dead_server_is_an_error() -> None:
    with pytest.raises(ServerUnavailable, match="no server answers"):
        Client(Address("unix:/nonexistent/socket")).run("r-1")


def test_a_stream_goes_on_from_its_cursor_after_a_broken_connection(server: RestServer, client: Client) -> None:
    def stream(request: Request) -> Reply:
        if "cursor" not in request.query:
            return Reply(pieces=[log("c1", b"one\n"), log("c2", b"two\n"), b"id: c3\nevent: lo"], cut=True)
        assert request.query["cursor"] == "c2"
        return Reply(pieces=[log("c3", b"\xffthree"), sse("c4", RunEnded("Completed", None))])

    server.on("GET", "/api/v1/runs/r-1/stream", stream)
    events = list(client.stream("@latest"))
    pieces = [item.event.data for item in events if isinstance(item.event, LogPiece)]
    assert b"".join(pieces) == b"one\ntwo\n\xffthree"
    assert events[-1].event == RunEnded("Completed", None)


def test_a_stream_ended_by_a_stopping_server_goes_on(server: RestServer, client: Client) -> None:
    def stream(request: Request) -> Reply:
        if "cursor" not in request.query:
            return Reply(pieces=[log("c1", b"one")])
        return Reply(pieces=[sse("c2", RunEnded("Failed", None))])

    server.on("GET", "/api/v1/runs/r-1/stream", stream)
    assert [item.event.kind for item in client.stream("r-1")] == ["log", "end"]


def test_a_stream_that_is_not_followed_ends_with_what_there_is(server: RestServer, client: Client) -> None:
    server.on("GET", "/api/v1/runs/r-1/stream", lambda request: Reply(pieces=[log("c1", b"one")]))
    assert len(list(client.stream("r-1", follow=False))) == 1
    query = server.requests[-1].query
    assert (query["follow"], query["logs"], query["metrics"]) == ("0", "1", "1")


def test_a_stream_that_never_comes_back_says_that_the_run_goes_on(server: RestServer, client: Client) -> None:
    server.on("GET", "/api/v1/runs/r-1/stream", lambda request: Reply(pieces=[], cut=True))
    with pytest.raises(ServerUnavailable, match="r-1"):
        list(client.stream("r-1"))


def test_a_download_that_breaks_goes_on_where_it_stopped(server: RestServer, client: Client, tmp_path: Path) -> None:
    content = os.urandom(5000)

    def file(request: Request) -> Reply:
        begin = request.headers.get("Range")
        if begin is None:
            return Reply(pieces=[content[:3000]], cut=True)
        assert begin == "bytes=3000-"
        return Reply(body=content[3000:], status=206)

    server.on("GET", "/api/v1/runs/r-1/files/outputs/m.pt", file)
    sizes: list[int] = []
    client.download("r-1", "outputs/m.pt", tmp_path / "sub" / "m.pt", progress=sizes.append)
    assert (tmp_path / "sub" / "m.pt").read_bytes() == content
    assert sum(sizes) == 5000


def test_a_download_that_fails_leaves_nothing_behind(server: RestServer, client: Client, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        client.download("r-1", "outputs/none", tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_a_file_is_asked_for_as_a_range(server: RestServer, client: Client) -> None:
    server.on("GET", "/api/v1/runs/r-1/files/a.txt", Reply(body=b"cde", status=206))
    assert client.read_file("r-1", "a.txt", 2, 3) == b"cde"
    assert server.requests[-1].headers["Range"] == "bytes=2-4"
    assert client.read_file("r-1", "a.txt", 2, 0) == b""


def test_an_upload_sends_the_file(server: RestServer, client: Client, tmp_path: Path) -> None:
    server.on("PUT", "/api/v1/runs/r-1/files/outputs/ä b.txt", {"path": "x"})
    (tmp_path / "f").write_bytes(b"x" * 100_000)
    client.upload("r-1", "outputs/ä b.txt", tmp_path / "f")
    assert server.requests[-1].body == b"x" * 100_000


def test_a_forked_child_does_not_speak_on_its_parents_connection(server: RestServer, client: Client) -> None:
    client.run("r-1")
    connections = client.calls._connections
    mine = connections.to(client.address)
    connections._local.pid = os.getpid() + 1
    assert connections.to(client.address) is not mine
    mine.close()


def test_filters_of_a_list_of_runs_are_sent(server: RestServer, client: Client) -> None:
    server.on("GET", "/api/v1/runs", [RUN])
    assert client.runs(limit=5, experiment="e") == [run_view()]
    assert server.requests[-1].query == {"limit": "5", "experiment": "e"}


def test_an_event_that_the_client_does_not_know_is_skipped(server: RestServer, client: Client) -> None:
    pieces = [sse_text("c1", "weather", {"sky": "blue"}), sse("c2", RunEnded("Completed", None))]
    server.on("GET", "/api/v1/runs/r-1/stream", lambda request: Reply(pieces=pieces))
    assert [item.event for item in client.stream("r-1")] == [RunEnded("Completed", None)]


@pytest.mark.parametrize("answer", [{"id": "r-1"}, {**RUN, "mood": "good"}, {**RUN, "num_nodes": "one"}, []])
def test_an_answer_that_cannot_be_read_is_an_error(server: RestServer, client: Client, answer: object) -> None:
    server.on("GET", "/api/v1/runs/r-1", answer)
    with pytest.raises(MusterError, match="/runs/r-1 cannot be read"):
        client.run("r-1")


def test_what_the_server_would_refuse_is_refused_before_it_is_sent(server: RestServer, client: Client) -> None:
    with pytest.raises(JobError, match="name 'two words'"):
        client.create_cluster("two words")
    with pytest.raises(JobError, match="lifetime_s"):
        Storage(client.calls).grant("azureml://datastores/x/paths/y", "read", True, 0)
    assert server.requests == []


def test_a_list_is_read_page_by_page_to_its_end(server: RestServer, client: Client) -> None:
    def page(request: Request) -> Reply:
        if request.query.get("cursor") == "c 2":
            return Reply([RUN])
        return Reply([RUN, RUN], headers={"Link": '</api/v1/runs?limit=2&cursor=c+2>; rel="next"'})

    server.on("GET", "/api/v1/runs", page)
    assert len(client.runs()) == 3
    assert len(client.runs(limit=3)) == 3
    assert [request.query["limit"] for request in server.requests] == ["1000", "1000", "3", "1"]
    assert len(client.runs(limit=2)) == 2
    assert len(server.requests) == 5
