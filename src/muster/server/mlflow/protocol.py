"""What all of MLflow's calls share: arguments that may be text, answers with its names, its error codes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from muster.server.context import Context
from muster.wire.codec import Json
from muster.wire.text import storable

Answer = dict[str, Json]
"""A JSON object of MLflow's protocol, whose fields are its own."""

ABSENT = "RESOURCE_DOES_NOT_EXIST"
EXISTS = "RESOURCE_ALREADY_EXISTS"
INVALID = "INVALID_PARAMETER_VALUE"
DENIED = "PERMISSION_DENIED"
NO_ENDPOINT = "ENDPOINT_NOT_FOUND"
_STATUS = {ABSENT: 404, EXISTS: 400, INVALID: 400, DENIED: 403, NO_ENDPOINT: 404}
_KEY_LENGTH = 250
_TEXT_LENGTH = 64 << 10

T = TypeVar("T")


class MlflowError(Exception):
    """An error that MLflow's clients understand."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        return _STATUS.get(self.code, 400)

    @property
    def answer(self) -> Answer:
        return {"error_code": self.code, "message": str(self)}


class Args:
    """The arguments of a call, from its body or its query."""

    def __init__(self, given: Mapping[str, Json]) -> None:
        self._given = given

    def text(self, name: str, *others: str) -> str:
        """A required text."""
        found = self.maybe(name, *others)
        if not found:
            raise MlflowError(INVALID, f"Missing value for required parameter '{name}'")
        return found

    def maybe(self, name: str, *others: str) -> str | None:
        for key in (name, *others):
            value = self._given.get(key)
            if value is not None:
                if isinstance(value, Sequence | Mapping) and not isinstance(value, str):
                    raise MlflowError(INVALID, f"'{key}' must be a string")
                return storable(value if isinstance(value, str) else str(value))[:_TEXT_LENGTH]
        return None

    def key(self, name: str) -> str:
        found = self.text(name)
        if len(found) > _KEY_LENGTH:
            raise MlflowError(INVALID, f"'{name}' is longer than {_KEY_LENGTH} characters")
        return found

    def whole(self, name: str, default: int = 0) -> int:
        """A whole number; clients in other languages send 64-bit numbers as text."""
        value = self._given.get(name)
        if value is None or value == "":
            return default
        try:
            return int(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise MlflowError(INVALID, f"'{name}' must be a whole number, not {value!r:.60}") from None

    def json(self, name: str) -> Json:
        return self._given.get(name)

    def each(self, name: str) -> list[Args]:
        """A list of objects."""
        found = self._given.get(name) or []
        if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
            raise MlflowError(INVALID, f"'{name}' must be a list of objects")
        return [Args(item) for item in found]

    def texts(self, name: str) -> list[str]:
        """A list of texts, or a single one."""
        found = self._given.get(name) or []
        if not isinstance(found, (str, list)):
            raise MlflowError(INVALID, f"'{name}' must be a list of texts")
        return [found] if isinstance(found, str) else [str(item) for item in found]

    def pairs(self, name: str) -> dict[str, str]:
        """A list of `{key, value}`, or a mapping."""
        found = self._given.get(name) or []
        if isinstance(found, Mapping):
            return {storable(str(key)): storable(str(value)) for key, value in found.items()}
        return {item.key("key"): item.maybe("value") or "" for item in self.each(name)}


@dataclass(frozen=True)
class Call:
    """One call: its arguments and its caller."""

    context: Context
    args: Args
    user: str
    run_id: str | None = None
    """The run whose rank calls; None for a person."""


def pairs(found: Mapping[str, str]) -> list[Json]:
    """A mapping in MLflow's form."""
    return [{"key": key, "value": value} for key, value in sorted(found.items())]


def milliseconds(at: float | None) -> int | None:
    return None if at is None else int(at * 1000)


def page_of(items: Sequence[T], args: Args, most: int) -> tuple[Sequence[T], str | None]:
    """A page of a list, and the token of the next one."""
    try:
        begin = int(args.maybe("page_token") or 0)
    except ValueError:
        raise MlflowError(INVALID, "Invalid page token") from None
    limit = max(1, min(args.whole("max_results", most), 50_000))
    end = begin + limit
    return items[begin:end], str(end) if end < len(items) else None


def with_token(answer: Answer, token: str | None) -> Answer:
    return {**answer, "next_page_token": token} if token else answer


Handler = Callable[..., Answer]
