"""Requests and answers as scripts see them, with the names of Azure ML's own packages."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import types
from typing import Any, Callable, Dict, Mapping, Optional, Tuple
from urllib.parse import parse_qsl

from muster.scoring.serve.forms import FormFile, Values, parsed

RAW = "__muster_rawhttp__"
PACKAGES = ("azureml.contrib.services", "azureml_inference_server_http.api")
"""Where scripts import requests and answers from: Azure ML's older package and its newer one."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_HEADERS = re.compile(r"[\r\n\0]")


class Headers(Dict[str, str]):
    """Headers as Flask names them (`Content-Type`), found in any case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__({name.title(): value for name, value in given.items()})

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.title())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.title())

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.title(), default)


class Request:
    """The request for a script with `@rawhttp`: the parts of a Flask request that such scripts use."""

    def __init__(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.query_string = query.encode()
        self.headers = Headers(headers)
        self.data = body
        self._form: Optional[Tuple[Values[str], Values[FormFile]]] = None

    @property
    def args(self) -> Values[str]:
        return Values(parse_qsl(self.query_string.decode(), keep_blank_values=True))

    @property
    def full_path(self) -> str:
        return "{}?{}".format(self.path, self.query_string.decode())

    @property
    def form(self) -> Values[str]:
        return self._parts()[0]

    @property
    def files(self) -> Values[FormFile]:
        return self._parts()[1]

    def _parts(self) -> Tuple[Values[str], Values[FormFile]]:
        if self._form is None:
            self._form = parsed(self.content_type, self.data)
        return self._form

    @property
    def content_type(self) -> str:
        return str(self.headers.get("content-type", ""))

    def get_data(self, cache: bool = True, as_text: bool = False, parse_form_data: bool = False) -> Any:
        return self.data.decode() if as_text else self.data

    def get_json(self, force: bool = False, silent: bool = False, cache: bool = True) -> Any:
        try:
            return json.loads(self.data)
        except ValueError:
            if silent:
                return None
            raise

    @property
    def json(self) -> Any:
        return self.get_json()


class Answer:
    """A status, headers, and a body or a stream of pieces."""

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
        self.mimetype = ""
        """Scripts may set it; the header wins."""

    def answer(self) -> Answer:
        is_text = isinstance(self.message, (str, bytes)) and not self.json_str
        body = self.message if is_text else json.dumps({} if self.message is None else self.message)
        kind = self.mimetype or ("" if is_text else "application/json")
        headers = {"x-ms-run-function-failed": str(self.run_function_failed).lower()}
        headers.update({"content-type": kind} if kind else {})
        headers.update({name.lower(): value for name, value in self.response_headers.items()})
        return Answer(int(self.status_code), body.encode() if isinstance(body, str) else body, headers)


def rawhttp(run: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a `run()` that takes the request itself."""
    setattr(run, RAW, True)
    return run


def install_stand_ins() -> None:
    """Make Azure ML's own names importable if the environment lacks them: scripts import them."""
    for package in PACKAGES:
        if _is_there(package + ".aml_request"):
            continue
        parts = package.split(".")
        for name in (".".join(parts[: count + 1]) for count in range(len(parts))):
            if name not in sys.modules:
                made = types.ModuleType(name)
                made.__path__ = []
                sys.modules[name] = made
        for name, offered in (
            ("aml_request", {"rawhttp": rawhttp, "AMLRequest": Request}), ("aml_response", {"AMLResponse": AMLResponse})
        ):  # fmt: skip
            module = types.ModuleType("{}.{}".format(package, name))
            vars(module).update(offered)
            sys.modules[module.__name__] = module


def is_raw(run: Callable[..., Any]) -> bool:
    """Whether `run()` takes the request itself, whichever `rawhttp` marked it."""
    if getattr(run, RAW, False):
        return True
    # Azure ML's own does not mark the function: it only records that there is one.
    return any(getattr(sys.modules.get(name + ".aml_request"), "_rawHttpRequested", False) for name in PACKAGES)


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def answer_of(result: Any) -> Answer:
    """The result of `run()`, as Azure ML's inference server answers it: JSON, unless the script made the answer."""
    if isinstance(result, Answer):
        return result
    if hasattr(result, "message") and hasattr(result, "status_code"):
        given = AMLResponse(
            result.message,
            result.status_code,
            getattr(result, "response_headers", {}),
            getattr(result, "json_str", False),
            bool(getattr(result, "run_function_failed", False)),
        )
        given.mimetype = str(getattr(result, "mimetype", None) or "")
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
    """Raise ValueError if a script made an answer that HTTP does not allow."""
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
    """Values of NumPy and torch as JSON values."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    raise TypeError("{} cannot be written as JSON".format(type(value).__name__))
