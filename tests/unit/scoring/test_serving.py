"""Requests as the protocols have them, results as scripts return them, batches with a poisoned request."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import pytest

from muster.client.serving import ServeSettings, Serving, job_of, settings_json
from muster.errors import JobError
from muster.job.explain import make_spec
from muster.scoring.listening import GONE
from muster.scoring.serve import oip
from muster.scoring.serve.app import App
from muster.scoring.serve.batching import Full, Outcome, Runner
from muster.scoring.serve.body import BadInput, TooLarge, TooSlow, body_of
from muster.scoring.serve.http import PACKAGES, AMLResponse, Answer, answer_of, check_sendable, install_stand_ins
from muster.scoring.serve.models import Model
from muster.scoring.serve.settings import Settings
from muster.scoring.serve.streaming import Broken


@pytest.mark.parametrize(
    ("result", "body"),
    [("text", b'"text"'), (None, b"{}"), ({"a": [1]}, b'{"a": [1]}'), ([1.5], b"[1.5]"), (True, b"true")],
)
def test_results_are_json_unless_the_script_makes_its_answer_itself(result: Any, body: bytes) -> None:
    answer = answer_of(result)
    assert (answer.status, answer.body) == (200, body)


def test_arrays_in_a_result_are_lists() -> None:
    class Array:
        def tolist(self) -> list[int]:
            return [1, 2]

    assert answer_of({"scores": Array(), "raw": b"x"}).body == b'{"scores": [1, 2], "raw": "x"}'


def test_an_answer_of_a_script_is_passed_on() -> None:
    answer = answer_of(AMLResponse("no", 418, {"x-own": "1"}, run_function_failed=True))
    assert (answer.status, answer.body, answer.headers["x-own"]) == (418, b"no", "1")


def infer(**changes: Any) -> bytes:
    tensor = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4], **changes}
    return json.dumps({"id": "7", "inputs": [tensor]}).encode()


def test_flat_data_gets_its_shape() -> None:
    for data in ([1, 2, 3, 4], [[1, 2], [3, 4]]):
        request = oip.parse(infer(data=data), "infer")
        assert (json.loads(request.text), request.id) == ({"inputs": [[1, 2], [3, 4]]}, "7")
    answer = oip.answer_of(Answer(200, b"[[1.5, 2.5]]"), request, Settings(name="net", version="3"))
    told = json.loads(answer.body)
    assert (told["model_name"], told["model_version"], told["id"]) == ("net", "3", "7")
    assert told["outputs"] == [{"name": "output_0", "shape": [1, 2], "datatype": "FP64", "data": [1.5, 2.5]}]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b'{"inputs": []}', b'{"inputs": [1]}', infer(shape=[3]), infer(shape=[-1]),
        infer(shape=None),
        infer(datatype="FP8"), infer(data="x"), infer(name=None), b"\xff", infer().decode().encode("utf-16"),
        b'{"inputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", infer(shape=[1] * 100_000, data=[1]),
        infer(shape=[10**9, 0], data=[]), infer(shape=[10**4000] * 1000), infer(shape=[True], data=[1]),
        json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}] * 2}).encode(),
    ],
)  # fmt: skip
def test_bad_requests_are_the_clients_fault(body: bytes) -> None:
    with pytest.raises(BadInput):
        oip.parse(body, "infer")


def test_an_error_in_the_models_own_words_is_passed_on() -> None:
    request, settings = oip.parse(infer(), "infer"), Settings(name="net")
    for body, said in ((b'{"message": "no"}', "no"), (b"{oops", "{oops"), (b'{"a": 1}', '{"a": 1}'), (b"[1]", "[1]")):
        answer = oip.answer_of(Answer(500, body), request, settings)
        assert (answer.status, json.loads(answer.body)) == (500, {"error": said})


@pytest.mark.parametrize(
    "body", [b"", b"\xff", '{"instances": [1]}'.encode("utf-16"), b'{"instances": ' + b"[" * 100_000 + b"]" * 100_000]
)
def test_bad_predictions_are_the_clients_fault_too(body: bytes) -> None:
    with pytest.raises(BadInput):
        oip.parse(body, "predict")


def taken(pieces: list[bytes | float], headers: dict[str, str] | None = None, most: int = 100) -> bytes:
    """A body that comes in pieces; a number is a wait in seconds before the next."""
    left = list(pieces)

    async def receive() -> dict[str, Any]:
        while isinstance(left[0], float):
            await asyncio.sleep(float(left.pop(0)))
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return asyncio.run(body_of(receive, headers or {}, most, 0.2))


def test_a_body_is_taken_whole() -> None:
    assert taken([b"ab", b"", b"c"]) == b"abc"
    assert taken([b"ab"], {"content-length": "2"}) == b"ab"
    assert taken([b"x" * 100]) == b"x" * 100


def test_a_body_that_is_too_large_is_refused_before_it_comes() -> None:
    with pytest.raises(TooLarge):
        taken([60.0], {"content-length": "101"})
    with pytest.raises(TooLarge):
        taken([b"x" * 60, b"x" * 60, 60.0])


def test_a_body_that_does_not_come_is_given_up() -> None:
    with pytest.raises(TooSlow):
        taken([b"x", 60.0, b"x"])
    drip: list[bytes | float] = [b"x", 0.05] * 90
    with pytest.raises(TooSlow):
        taken([*drip, b"x"])


def test_a_body_that_does_not_come_leaves_time_limits_further_up_as_they_are() -> None:
    async def work() -> str:
        async with asyncio.timeout(60) as outer:
            with pytest.raises(TooSlow):
                await body_of(asyncio.Event().wait, {}, 10, 0.01)
            task = asyncio.current_task()
            assert task is not None and task.cancelling() == 0
            outer.reschedule(0)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise
        return "not reached"

    with pytest.raises(TimeoutError):
        asyncio.run(work())


def test_whoever_ends_a_request_goes_before_its_slow_body() -> None:
    async def work() -> None:
        async def receive() -> Any:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                task.cancel()
                raise

        task = asyncio.ensure_future(body_of(receive, {}, 10, 0.01))
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())


@pytest.mark.parametrize("max_batch", [1, 4])
def test_bad_input_is_answered_without_a_traceback_in_the_log(max_batch: int, capsys: Any) -> None:
    def run(data: Any) -> Any:
        raise BadInput("no columns") if "bad" in data else RuntimeError("broken")

    async def work() -> list[Outcome]:
        runner = Runner(Model(lambda: None, run), asyncio.get_running_loop(), max_batch, 0.0, 10)
        outcomes = [await runner.submit("bad", {}).done]
        printed = capsys.readouterr().err
        outcomes.append(await runner.submit("other", {}).done)
        runner.close()
        assert printed == ""
        return outcomes

    bad, other = asyncio.run(work())
    assert isinstance(bad.error, BadInput) and isinstance(other.error, RuntimeError)
    assert "RuntimeError: broken" in capsys.readouterr().err


def test_routes_of_the_protocols() -> None:
    for path in ("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/net", "/v2/models/net/versions/1/ready"):
        route = oip.route_of("GET", path, "net", "1")
        assert isinstance(route, Answer) and route.status == 200
    assert oip.route_of("POST", "/v2/models/net/infer", "net", "1") == "infer"
    assert oip.route_of("POST", "/v1/models/net:predict", "net", "1") == "predict"
    for path in ("/v2/models/other/infer", "/v2/models/net/versions/2/infer", "/v1/models/other:predict"):
        route = oip.route_of("POST", path, "net", "1")
        assert isinstance(route, Answer) and route.status == 404


def answers(run: Callable[..., Any], requests: list[Any], max_batch: int = 1, most: int = 100) -> list[Outcome]:
    """What came of requests that were all there when the model became free."""

    async def ask() -> list[Outcome]:
        begin = threading.Event()

        def held(data: Any) -> Any:
            begin.wait(10)
            return run(data)

        runner = Runner(Model(lambda: None, held), asyncio.get_running_loop(), max_batch, 0.2, most)
        try:
            waiting = [runner.submit(data, {}) for data in requests]
            begin.set()
            return [await asyncio.wait_for(item.done, 10) for item in waiting]
        finally:
            begin.set()
            await asyncio.to_thread(runner.close)

    return asyncio.run(ask())


def test_each_request_has_its_own_result_and_error() -> None:
    def run(data: str) -> str:
        if data == "bad":
            raise ValueError("no")
        return data.upper()

    found = answers(run, ["a", "bad", "c"])
    assert [item.value for item in found] == ["A", None, "C"]
    assert isinstance(found[1].error, ValueError)


def test_an_answer_does_not_wait_for_those_that_were_taken_with_it() -> None:
    begin, busy, left_it, answered = (threading.Event() for _ in range(4))
    ran = []

    def run(data: str) -> bool:
        ran.append(data)
        if data == "first":
            busy.set()
            left_it.wait(10)
            time.sleep(0.01)
        return {"held": begin, "late": answered}.get(data, left_it).wait(10)

    async def ask() -> list[bool]:
        runner = Runner(Model(lambda: None, run), asyncio.get_running_loop(), 1, 0.0, 10)
        _, first, left, late = (runner.submit(name, {}) for name in ("held", "first", "left", "late"))
        try:
            begin.set()
            await asyncio.to_thread(busy.wait, 10)
            left.give_up(Outcome(None))
            left_it.set()
            await first.done
            answered.set()
            return [(await item.done).value for item in (first, late)]
        finally:
            await asyncio.to_thread(runner.close)

    assert asyncio.run(ask()) == [True, True]
    assert ran == ["held", "first", "late"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
@pytest.mark.parametrize("max_batch", [1, 2])
def test_whatever_a_script_raises_the_next_request_is_answered(error: BaseException, max_batch: int) -> None:
    def run(data: Any) -> Any:
        if "bad" in data:
            raise error
        return data

    bad, good = answers(run, ["bad", "good"], max_batch)
    assert bad.error is error and good.value == "good"


def test_a_stream_that_ends_badly_leaves_the_model_to_the_next_request() -> None:
    def ends_badly() -> Any:
        try:
            yield "a"
            raise SystemExit(2)
        finally:
            raise RuntimeError("in the end")

    class Stubborn:
        def __iter__(self) -> Stubborn:
            return self

        def __next__(self) -> str:
            raise StopIteration

        def close(self) -> None:
            raise RuntimeError("not now")

    async def ask() -> list[Any]:
        given = iter([ends_badly(), Stubborn(), "good"])
        runner = Runner(Model(lambda: None, lambda data: next(given)), asyncio.get_running_loop(), 1, 0.0, 10)
        try:
            waiting = [runner.submit("", {}) for _ in range(3)]
            return [(await asyncio.wait_for(item.done, 10)).value for item in waiting]
        finally:
            await asyncio.to_thread(runner.close)

    assert asyncio.run(ask())[2] == "good"


@pytest.mark.parametrize("tells", ["the connection", "receive"])
def test_a_request_whose_client_went_is_not_run(tells: str) -> None:
    """The listener's own future says that it went; another server's `receive` does."""
    ran: list[str] = []

    async def ask() -> None:
        busy, loop = threading.Event(), asyncio.get_running_loop()
        runner = Runner(Model(lambda: None, lambda data: (ran.append(data), busy.wait(10))), loop, 1, 0.0, 10)
        app = App(Settings(), Model(lambda: None, lambda data: data), runner)
        gone: asyncio.Future[None] = loop.create_future()
        body = [{"type": "http.request", "body": b"second"}]

        async def receive() -> Any:
            if body:
                return body.pop()
            await gone
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            raise AssertionError(message)

        scope = {"method": "POST", "path": "/score", "query_string": b"", "headers": []}
        try:
            runner.submit("first", {})
            while not ran:
                await asyncio.sleep(0)
            asked = asyncio.ensure_future(app({**scope, **({GONE: gone} if "conn" in tells else {})}, receive, send))
            while not runner.waiting:
                await asyncio.sleep(0)
            gone.set_result(None)
            await asyncio.wait_for(asked, 10)
        finally:
            busy.set()
            await asyncio.to_thread(runner.close)

    asyncio.run(ask())
    assert ran == ["first"]


def test_a_request_that_takes_too_long_is_answered_in_time() -> None:
    async def ask() -> list[Any]:
        busy, sent = threading.Event(), []
        runner = Runner(Model(lambda: None, lambda data: busy.wait(10)), asyncio.get_running_loop(), 1, 0.0, 10)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"{}"}

        async def send(message: Any) -> None:
            sent.append(message)

        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        scope = {"method": "POST", "path": "/score", "query_string": b"", "headers": [], GONE: never}
        try:
            await App(Settings(timeout_ms=20), Model(lambda: None, lambda data: data), runner)(scope, receive, send)
        finally:
            busy.set()
            await asyncio.to_thread(runner.close)
        return sent

    assert asyncio.run(ask())[0]["status"] == 408


@pytest.mark.parametrize(
    ("status", "headers"), [(42, {}), (700, {}), (200, {"x-a": "☃"}), (200, {"x-a": "a\r\nb: c"}), (200, {"a b": "c"})]
)
def test_answers_that_http_does_not_have_are_refused(status: int, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"header|status"):
        check_sendable(answer_of(AMLResponse("x", status, headers)))


def test_a_poisoned_request_of_a_batch_fails_alone() -> None:
    sizes = []

    def run(batch: list[str]) -> list[str]:
        sizes.append(len(batch))
        if "bad" in batch:
            raise ValueError("no")
        return [item.upper() for item in batch]

    found = answers(run, ["a", "b", "bad", "c"], max_batch=4)
    assert [item.value for item in found] == ["A", "B", None, "C"]
    assert isinstance(found[2].error, ValueError) and sizes == [4, 1, 1, 1, 1]


def test_a_batch_of_the_wrong_length_and_errors_within_it() -> None:
    found = answers(lambda batch: [ValueError("own"), *batch[1:]], ["a", "b"], max_batch=2)
    assert isinstance(found[0].error, ValueError) and found[1].value == "b"
    short = answers(lambda batch: [], ["a"], max_batch=2)
    assert "0 results for 1 requests" in str(short[0].error)


def streamed(run: Callable[[Any], Any], take: int = 1000) -> tuple[Any, list[bytes], bool]:
    """The head, the pieces that were taken, and whether the rest came."""

    async def ask() -> tuple[Any, list[bytes], bool]:
        runner = Runner(Model(lambda: None, run), asyncio.get_running_loop(), 1, 0.0, 10)
        found: list[bytes] = []
        try:
            outcome = await asyncio.wait_for(runner.submit("", {}).done, 10)
            if outcome.error is not None:
                return outcome.error, [], False
            stream = outcome.value
            try:
                async for piece in stream.taken():
                    found.append(piece)
                    if len(found) == take:
                        stream.close()
            except Broken:
                return stream, found, False
            return stream, found, True
        finally:
            await asyncio.to_thread(runner.close)

    return asyncio.run(ask())


def test_what_run_yields_is_passed_on_piece_by_piece() -> None:
    stream, found, whole = streamed(lambda data: iter(["a", "b"]))
    assert (found, whole, stream.status) == ([b"a", b"b"], True, 200)
    assert stream.headers["content-type"] == "text/plain; charset=utf-8"
    stream, found, whole = streamed(lambda data: ({"token": n} for n in range(200)))
    assert whole and len(found) == 200 and found[1] == b'{"token": 1}\n'
    told = AMLResponse(iter([b"data: x\n\n"]), 201, {"Content-Type": "text/event-stream"})
    stream, found, whole = streamed(lambda data: told)
    assert (stream.status, stream.headers["content-type"]) == (201, "text/event-stream")
    assert streamed(lambda data: iter([]))[1:] == ([b""], True)


def test_a_stream_that_fails_is_an_error_before_its_first_piece_and_cut_off_after_it() -> None:
    def fails(after: int) -> Any:
        yield from ["x"] * after
        raise ValueError("no")

    assert isinstance(streamed(lambda data: fails(0))[0], ValueError)
    _, found, whole = streamed(lambda data: fails(2))
    assert found == [b"x", b"x"] and not whole


def test_a_stream_that_nobody_takes_is_ended() -> None:
    ended = threading.Event()

    def endless() -> Any:
        try:
            while True:
                yield "x"
        finally:
            ended.set()

    _, _, whole = streamed(lambda data: endless(), take=3)
    assert not whole and ended.wait(10)


def test_more_than_may_wait_are_refused() -> None:
    with pytest.raises(Full):
        answers(lambda data: data, ["a"] * 20, most=5)


def test_the_settings_that_a_client_sends_are_those_that_a_server_reads() -> None:
    sent = settings_json(ServeSettings("s.py", "net", "3", "127.0.0.1", 5001, 2, 16, 1.0, 9.0, 7))
    read = json.loads(Settings.parse(json.dumps(sent)).dump())
    assert {**read, "max_body": None} == {**json.loads(json.dumps(sent)), "max_body": None}


def test_others_reach_a_model_only_with_a_key() -> None:
    with pytest.raises(JobError, match="no key keeps them out"):
        job_of(Serving(ServeSettings(host="0.0.0.0")), "{}")
    spec = make_spec(job_of(Serving(ServeSettings(host="0.0.0.0"), key_secret="API_KEY"), "{}"))
    assert spec.environment_variables == {"SERVE_KEY": "${{secrets.API_KEY}}"}


@pytest.mark.parametrize("package", PACKAGES)
def test_azure_mls_own_names_are_there_and_say_who_wants_the_request_itself(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    install_stand_ins()
    offered = sys.modules[f"{package}.aml_request"].rawhttp

    def run(request: Any) -> Any:
        return request

    assert not Model(lambda: None, run).is_raw
    assert Model(lambda: None, offered(run)).is_raw
    # The packages themselves leave the function as it is.
    own = types.ModuleType(f"{package}.aml_request")
    vars(own)["_rawHttpRequested"] = True
    monkeypatch.setitem(sys.modules, own.__name__, own)
    assert Model(lambda: None, lambda request: request).is_raw
