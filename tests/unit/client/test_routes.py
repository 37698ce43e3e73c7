"""What the clients send and read is what the server takes and sends: each call meets a route with the same messages."""

from __future__ import annotations

import contextlib
import inspect
import re
import tarfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from muster.client.api import Client
from muster.client.calls import API, Calls
from muster.client.endpoints.batch import BatchEndpoints
from muster.client.endpoints.calls import Endpoints
from muster.client.sse import StreamItem
from muster.client.storage import Storage
from muster.errors import NotFound
from muster.host.http import Address
from muster.job.explain import make_spec
from muster.job.spec import JobSpec
from muster.server.http import app
from muster.wire.data.access import FileEntry, NewAccess, Scope, Use
from muster.wire.data.assets import NewAsset
from muster.wire.data.datastores import NewDatastore
from muster.wire.encryption import NewKey
from muster.wire.people import Role
from muster.wire.runs import Submission
from muster.wire.serving.batch import BatchEndpointChanges, BatchRequest, NewBatchDeployment, NewBatchEndpoint
from muster.wire.serving.endpoints import EndpointChanges, KeyKind, NewDeployment, NewEndpoint, ServingReport
from muster.wire.stream import RunEnded

Document = dict[str, Any]
LOCAL = {"address", "storage", "close", "open_tunnel", "stacks"}
"""Names of the client that call no route, and those that go on through a tunnel."""
ARGUMENTS: Mapping[Any, Any] = {
    str: "some",
    bool: True,
    int: 1,
    float: 1.0,
    Scope: "read",
    Use: "read",
    NewAccess: NewAccess("azureml://datastores/some/paths/some"),
    Role: "member",
    Sequence[FileEntry]: [FileEntry("some", 1)],
    Sequence[str]: ["some"],
    JobSpec: make_spec({"command": "true"}),
    NewAsset: NewAsset("some", "azureml://datastores/some/paths/some"),
    NewDatastore: NewDatastore("some", "local"),
    NewKey: NewKey(),
    NewEndpoint: NewEndpoint("some"),
    EndpointChanges: EndpointChanges(),
    NewDeployment: NewDeployment(Submission("some", {})),
    KeyKind: "primary",
    Sequence[Submission]: [Submission("some", {})],
    ServingReport: ServingReport(1),
    NewBatchEndpoint: NewBatchEndpoint("some"),
    BatchEndpointChanges: BatchEndpointChanges(),
    NewBatchDeployment: NewBatchDeployment(Submission("some", {})),
    BatchRequest: BatchRequest("some", "some"),
}
ANSWER = SimpleNamespace(
    id="some",
    version="1",
    type="uri_folder",
    address="some",
    files=(),
    works=(),
    log="",
    path="some",
    digest=None,
    url="some",
)


class Recorder(Calls):
    """Notes what would be sent, and what the answer would be read as."""

    def __init__(self) -> None:
        super().__init__(Address("unix:/nowhere"))
        self.calls: list[tuple[str, str, Any, Any]] = []
        """Method, path, the type of the body, the type of the answer; None where there is none."""

    def read(self, kind: Any, method: str, path: str, *, message: object = None, **request: Any) -> Any:
        self.calls.append((method, path, message and type(message), kind))
        return [] if get_origin(kind) is list else ANSWER

    def send(self, method: str, path: str, *, message: object = None, **request: Any) -> Any:
        self.calls.append((method, path, message and type(message), None))

    def whole(self, path: str, query: Any) -> bytes:
        self.calls.append(("GET", path, None, None))
        return b""

    def events(self, path: str, query: Any) -> Iterator[Any]:
        self.calls.append(("GET", path, None, None))
        return iter([StreamItem(RunEnded("Completed", None), "")])

    def download(self, path: str, *_: Any, **__: Any) -> None:
        self.calls.append(("GET", path, None, None))

    @contextmanager
    def open(self, path: str, headers: Any, query: Any = None) -> Iterator[Any]:
        self.calls.append(("GET", path, None, None))
        yield BytesIO(b"\0" * 1024)


def methods(group: type) -> list[str]:
    return [name for name, _ in inspect.getmembers(group) if not name.startswith("_") and name not in LOCAL]


@pytest.mark.parametrize("name", methods(Client))
def test_a_call_meets_its_route(name: str, tmp_path: Path, document: Document) -> None:
    recorder = Recorder()
    client = Client(Address("unix:/nowhere"))
    client.calls = recorder
    check(getattr(client, name), recorder, tmp_path, document)


@pytest.mark.parametrize("name", methods(Storage))
def test_a_call_about_storage_meets_its_route(name: str, tmp_path: Path, document: Document) -> None:
    recorder = Recorder()
    check(getattr(Storage(recorder), name), recorder, tmp_path, document)


@pytest.mark.parametrize("name", methods(Endpoints))
def test_a_call_about_endpoints_meets_its_route(name: str, tmp_path: Path, document: Document) -> None:
    recorder = Recorder()
    check(getattr(Endpoints(recorder), name), recorder, tmp_path, document)


@pytest.mark.parametrize("name", methods(BatchEndpoints))
def test_a_call_about_batch_endpoints_meets_its_route(name: str, tmp_path: Path, document: Document) -> None:
    recorder = Recorder()
    check(getattr(BatchEndpoints(recorder), name), recorder, tmp_path, document)


def check(method: Callable[..., Any], recorder: Recorder, folder: Path, document: Document) -> None:
    file = folder / "file"
    file.write_bytes(b"x")
    # What is listed and unpacked here is empty.
    with contextlib.suppress(NotFound, tarfile.TarError):
        answer = method(**arguments(method, file))
        if inspect.isgenerator(answer):
            list(answer)
    assert recorder.calls
    for verb, path, sent, read in recorder.calls:
        route = found(document, verb, API + path)
        assert route is not None, f"the server has no {verb} {path}"
        answers = [answer for status, answer in route["responses"].items() if status.startswith("2")]
        assert_same(f"the body of {verb} {path}", sent, declared(route.get("requestBody", {})))
        assert_same(f"the answer to {verb} {path}", read, declared(answers[0]))


def found(document: Document, verb: str, path: str) -> Document | None:
    """The route that answers a request; one without variable parts goes first."""
    for template, verbs in sorted(document["paths"].items(), key=lambda item: item[0].count("{")):
        pattern = re.sub(r"\{\w+\}", "[^/]+", template.replace("{path}", ".+"))
        if verb.lower() in verbs and re.fullmatch(pattern, path):
            route: Document = verbs[verb.lower()]
            return route
    return None


def declared(body: Document) -> str:
    """The name of a message, `[NAME]` for a list of them; empty where a route declares none."""
    schema = body.get("content", {}).get("application/json", {}).get("schema", {})
    if schema.get("type") == "array":
        item = schema["items"].get("$ref", "")
        return f"[{item.rpartition('/')[2]}]" if item else ""
    return str(schema.get("$ref", "").rpartition("/")[2])


def assert_same(what: str, by_client: Any, by_server: str) -> None:
    """What a call sends or reads is what its route declares; a call that reads none says nothing."""
    if by_client is not None:
        is_list = get_origin(by_client) is list
        name = get_args(by_client)[0].__name__ if is_list else by_client.__name__
        assert (f"[{name}]" if is_list else name) == by_server, what


def arguments(method: Callable[..., Any], file: Path) -> dict[str, Any]:
    # The client itself imports the job only where types are checked.
    hints = get_type_hints(method, localns={"JobSpec": JobSpec})
    wanted = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty]
    return {p.name: argument(hints[p.name], file) for p in wanted}


def argument(kind: Any, file: Path) -> Any:
    if kind in ARGUMENTS:
        return ARGUMENTS[kind]
    if kind is Path or Path in get_args(kind):
        return file
    if str in get_args(kind):
        return None
    return {} if issubclass(get_origin(kind), Mapping) else ()


@pytest.fixture(scope="module")
def document() -> Document:
    gate: Any = app.make_app(SimpleNamespace(), lambda: None)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        # One function answers GET and HEAD for files of datastores.
        warnings.filterwarnings("ignore", "Duplicate Operation ID read_data")
        described: Document = gate._app.openapi()
    return described
