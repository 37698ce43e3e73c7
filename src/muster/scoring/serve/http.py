"""Requests and answers as scripts see them, with the names that Azure ML's own packages have."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import types
from typing import Any, Callable, Dict, List, Mapping, Optional
from urllib.parse import parse_qsl

RAW = "__muster_rawhttp__"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_HEADERS = re.compile(r"[\r\n\0]")


class Request:
    """What a script with `@rawhttp` gets: the parts of a Flask request that such scripts use."""

    def __init__(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.query_string = query.encode()
        self.headers = headers
        self.data = body

    @property
    def args(self) -> Dict[str, str]:
        return dict(parse_qsl(self.query_string.decode(), keep_blank_values=True))

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")

    def get_data(self, as_text: bool = False, **kwargs: Any) -> Any:
        return self.data.decode() if as_text else self.data

    def get_json(self, **kwargs: Any) -> Any:
        return json.loads(self.data)

    @property
    def json(self) -> Any:
        return self.get_json()


class Answer:
    """A status, headers and a body, or a stream of pieces in its place."""

    __slots__ = ("body", "headers", "status", "stream")

    def __init__(
        self, status: int, body: bytes, headers: Optional[Mapping[str, str]] = None, stream: Any = None
    ) -> None:
        self.status = status
        self.body = body
        self.headers = dict(headers or {})
        self.stream = stream


class AMLResponse:
    """An answer that a script makes itself."""

    def __init__(
        self,
        message: Any,
        status_code: int,
        response_headers: Optional[Mapping[str, str]] = None,
        json_str: bool = False,
        run_function_failed: bool = False,
    ) -> None:
        self.message = message
        self.status_code = status_code
        self.response_headers = dict(response_headers or {})
        self.json_str = json_str
        self.run_function_failed = run_function_failed

    def answer(self) -> Answer:
        is_text = isinstance(self.message, (str, bytes)) and not self.json_str
        body = self.message if is_text else json.dumps(self.message)
        headers = {"x-ms-run-function-failed": str(self.run_function_failed).lower(), **self.response_headers}
        return Answer(int(self.status_code), body.encode() if isinstance(body, str) else body, headers)


def rawhttp(run: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a `run()` that wants the request itself."""
    setattr(run, RAW, True)
    return run


def install_stand_ins() -> None:
    """Have `azureml.contrib.services` be there where the environment lacks it: scripts import it."""
    if _is_there("azureml.contrib.services.aml_request"):
        return
    parents: List[str] = []
    for part in ("azureml", "contrib", "services"):
        parents.append(part)
        name = ".".join(parents)
        if name not in sys.modules:
            made = types.ModuleType(name)
            made.__path__ = []
            sys.modules[name] = made
    request = types.ModuleType("azureml.contrib.services.aml_request")
    response = types.ModuleType("azureml.contrib.services.aml_response")
    vars(request).update({"rawhttp": rawhttp, "AMLRequest": Request})
    vars(response).update({"AMLResponse": AMLResponse})
    for module in (request, response):
        sys.modules[module.__name__] = module


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def answer_of(result: Any) -> Answer:
    """What `run()` returned, as Azure ML's inference server answers it: JSON, unless it made its answer itself."""
    if isinstance(result, Answer):
        return result
    if hasattr(result, "message") and hasattr(result, "status_code"):
        given = AMLResponse(
            result.message,
            result.status_code,
            getattr(result, "response_headers", {}),
            getattr(result, "json_str", False),
        )
        return given.answer()
    if hasattr(result, "get_data") and hasattr(result, "status_code"):
        return Answer(
            int(result.status_code),
            bytes(result.get_data()),
            {key.lower(): value for key, value in result.headers.items()},
        )
    plain = {} if result is None else result
    return Answer(200, json.dumps(plain, default=json_value).encode(), {"content-type": "application/json"})


def check_sendable(answer: Answer) -> None:
    """Raise ValueError where a script made an answer that HTTP does not have."""
    if not 200 <= answer.status <= 599:
        raise ValueError("status {} is none of 200 to 599".format(answer.status))
    for name, value in answer.headers.items():
        text = str(value)
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError("{!r} is no name of a header".format(name))
        if _NOT_IN_HEADERS.search(text) or not _is_latin(text):
            raise ValueError("the header {} has a line break, or a character that headers cannot have".format(name))


def _is_latin(text: str) -> bool:
    try:
        return bool(text.encode("latin-1")) or not text
    except UnicodeEncodeError:
        return False


def json_value(value: Any) -> Any:
    """NumPy's and torch's values as JSON has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    raise TypeError("{} cannot be written as JSON".format(type(value).__name__))
