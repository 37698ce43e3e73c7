"""Messages to JSON values and back. Standard library only.

The work for each type is prepared once and kept. Reading is strict: an unknown field, a missing one without a default
or a value of another type is a WireError that names the field. Writing trusts the types and copies no scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

T = TypeVar("T")

_OPEN = "any JSON value"

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
    """Any JSON value: only for truly open data, such as a metric's value or a job document."""
else:
    # Pydantic cannot follow a recursive alias with the standard library alone.
    Json = Annotated[Any, _OPEN]

OMIT = {"omit": True}
"""A field's metadata: while the field has its default, it is left out of the JSON."""

Encoder = Callable[[Any], Any]
Decoder = Callable[[Any], Any]


class WireError(ValueError):
    """A JSON value is not what a message says it is."""

    def __init__(self, problem: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path

    @property
    def field(self) -> str:
        """The field that is wrong, such as `attempts[0].nodes[1].name`; empty for the value as a whole."""
        return "".join(part if part.startswith("[") else f".{part}" for part in self.path).removeprefix(".")

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}" if self.path else self.problem

    def below(self, part: str) -> WireError:
        return WireError(self.problem, (part, *self.path))


def to_json(value: Any) -> Any:
    """A message, or a list or mapping of messages, as values that `json.dumps` takes."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    encode = _encoders.get(kind)
    if encode is not None:
        return encode(value)
    if is_dataclass(kind):
        encode = _encoders[kind] = _make_encoder(kind)
        return encode(value)
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [to_json(item) for item in value]
    raise TypeError(f"{kind.__name__} has no JSON form")


_lenient: ContextVar[bool] = ContextVar("lenient", default=False)
"""Whether unknown fields are ignored."""


def from_json(kind: type[T], data: Any) -> T:
    """A value of the given type (a message, `tuple[Message, ...]`, …) from what `json.loads` returned."""
    made: T = _reader(kind).decode(data)
    return made


def pass_over_unknown_fields() -> None:
    """Ignore unknown fields from now on in this task: the sender is newer, and may send more."""
    _lenient.set(True)


def from_neighbour(kind: type[T], data: Any) -> T:
    """Like `from_json`, for data of a neighbouring version: unknown fields are ignored."""
    token = _lenient.set(True)
    try:
        return from_json(kind, data)
    finally:
        _lenient.reset(token)


def from_file(kind: type[T], data: Any) -> T:
    """Like `from_json`, for files to which another version or another part of Muster may write more fields."""
    if not isinstance(data, Mapping):
        raise _refused(kind.__name__, data)
    known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    return from_json(kind, {name: value for name, value in data.items() if name in known})


# Writing

_SCALARS: frozenset[type[Any]] = frozenset({str, int, float, bool, NoneType})
_encoders: dict[type[Any], Encoder] = {}


def _encoder(kind: Any) -> Encoder | None:
    """The encoder of a type; None where its values are JSON already."""
    origin = get_origin(kind)
    if kind in _SCALARS or origin is Literal:
        return None
    if origin is Annotated:
        return _encode_open
    if is_dataclass(kind):
        # Looked up on use: a field may hold a subclass.
        return to_json
    if origin in (Union, UnionType):
        members = [_encoder(member) for member in get_args(kind)]
        return None if all(member is None for member in members) else to_json
    if origin is tuple or origin in _LISTS:
        items = [_encoder(item) for item in get_args(kind) if item is not Ellipsis]
        return list if all(item is None for item in items) else lambda value: [to_json(item) for item in value]
    if origin in _MAPPINGS:
        item = _encoder(get_args(kind)[1])
        return dict if item is None else lambda value: {key: item(inner) for key, inner in value.items()}
    raise TypeError(f"{kind} cannot be part of a message")


def _encode_open(value: Any) -> Any:
    return value if type(value) in _PLAIN else to_json(value)


def _make_encoder(kind: type[Any]) -> Encoder:
    hints = get_type_hints(kind, include_extras=True)
    named = [item.name for item in fields(kind)]
    converted = [(name, convert) for name in named if (convert := _encoder(hints[name])) is not None]
    omitted = [(item.name, make()) for item in fields(kind) if item.metadata.get("omit") and (make := _default(item))]

    def encode(value: Any) -> Any:
        # `__dict__` holds a dataclass's fields in order; a copy is one call instead of one per field.
        made = dict(value.__dict__)
        for name, default in omitted:
            if made[name] == default:
                del made[name]
        for name, convert in converted:
            if name in made:
                made[name] = convert(made[name])
        return made

    return encode


# Reading


@dataclass(frozen=True)
class _Reader:
    """The decoder of one type."""

    expected: str
    decode: Decoder
    taken_as_is: frozenset[type[Any]] = frozenset()
    """Types of JSON values that need only a type check."""


_LISTS = (list, Sequence)
_MAPPINGS = (dict, Mapping)
_STRUCTURED = (tuple, *_LISTS, *_MAPPINGS)
_PLAIN: frozenset[type[Any]] = _SCALARS | {dict, list}
_WORDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false", NoneType: "null"}
_JSON_WORDS = {dict: "an object", list: "a list", tuple: "a list", **_WORDS}


_readers: dict[Any, _Reader] = {}


def _reader(kind: Any) -> _Reader:
    found = _readers.get(kind)
    if found is None:
        found = _readers[kind] = _make_reader(kind)
    return found


def _make_reader(kind: Any) -> _Reader:
    origin = get_origin(kind)
    if origin is Annotated or kind is Any:
        return _Reader(_OPEN, lambda value: value, frozenset(_PLAIN))
    if kind in _SCALARS:
        return _scalar(kind)
    if origin is Literal:
        return _literal(get_args(kind))
    if origin in (Union, UnionType):
        return _union(get_args(kind))
    if origin is tuple:
        items = get_args(kind)
        return _sequence(items[0], tuple) if items[-1] is Ellipsis else _fixed(items)
    if origin in _LISTS:
        return _sequence(get_args(kind)[0], list if origin is list else tuple)
    if origin in _MAPPINGS:
        return _mapping(*get_args(kind))
    if is_dataclass(kind):
        return _message(kind)
    raise TypeError(f"{kind} cannot be part of a message")


def _refused(expected: str, value: Any) -> WireError:
    shown = repr(value) if type(value) in _SCALARS else ""
    given = _JSON_WORDS.get(type(value), type(value).__name__)
    text = f"{given} ({shown[:60]})" if shown and value is not None else given
    return WireError(f"expected {expected}, got {text}")


def _scalar(kind: type[Any]) -> _Reader:
    def decode(value: Any) -> Any:
        # The exact type: True is not a whole number here.
        if type(value) is kind:
            return value
        if kind is float and type(value) is int:
            return float(value)
        raise _refused(_WORDS[kind], value)

    return _Reader(_WORDS[kind], decode, frozenset({kind}))


def _literal(values: tuple[Any, ...]) -> _Reader:
    expected = "one of " + ", ".join(map(repr, values)) if len(values) > 1 else repr(values[0])
    known = {(type(value), value): value for value in values}

    def decode(value: Any) -> Any:
        try:
            return known[type(value), value]
        except (KeyError, TypeError):
            raise _refused(expected, value) from None

    return _Reader(expected, decode)


def _sequence(item: Any, make: Callable[[Iterable[Any]], Any]) -> _Reader:
    reader = _reader(item)
    decode_item, as_is = reader.decode, reader.taken_as_is

    def decode(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise _refused("a list", value)
        found = []
        for inner in value:
            try:
                found.append(inner if type(inner) in as_is else decode_item(inner))
            except WireError as error:
                raise error.below(f"[{len(found)}]") from None
        return make(found)

    return _Reader("a list", decode)


def _fixed(items: tuple[Any, ...]) -> _Reader:
    decoders = [_reader(item).decode for item in items]
    expected = f"a list of {len(items)}"

    def decode(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(decoders):
            raise _refused(expected, value)
        found = []
        for inner, decode_item in zip(value, decoders, strict=True):
            try:
                found.append(decode_item(inner))
            except WireError as error:
                raise error.below(f"[{len(found)}]") from None
        return tuple(found)

    return _Reader(expected, decode)


def _mapping(key: Any, item: Any) -> _Reader:
    if key is not str:
        raise TypeError(f"the keys of a JSON object are strings, not {key}")
    reader = _reader(item)
    decode_item, as_is = reader.decode, reader.taken_as_is

    def decode(value: Any) -> Any:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise _refused("an object", value)
        found = {}
        for name, inner in value.items():
            if type(name) is not str:
                raise _refused("a string as key", name)
            try:
                found[name] = inner if type(inner) in as_is else decode_item(inner)
            except WireError as error:
                raise error.below(f"[{name!r}]") from None
        return found

    return _Reader("an object", decode)


def _union(members: tuple[Any, ...]) -> _Reader:
    """Told apart by the type of the JSON value; several messages by a field that is a Literal in each."""
    messages: list[Any] = [member for member in members if is_dataclass(member)]
    message = _one_of(messages) if messages else None
    simple: list[_Reader] = []
    structured: list[_Reader] = []
    for member in members:
        if not is_dataclass(member):
            (structured if get_origin(member) in _STRUCTURED else simple).append(_reader(member))
    readers = [*simple, *structured, *([message] if message else [])]
    expected = " or ".join(reader.expected for reader in readers)
    as_is = frozenset(kind for reader in readers for kind in reader.taken_as_is)

    def decode(value: Any) -> Any:
        if type(value) in as_is:
            return value
        if message is not None and (type(value) is dict or isinstance(value, Mapping)):
            return message.decode(value)
        if structured and isinstance(value, Mapping | list | tuple):
            return _first(structured, value, expected)
        return _first(simple, value, expected)

    return _Reader(expected, decode, as_is)


def _first(readers: Sequence[_Reader], value: Any, expected: str) -> Any:
    """The value from the first reader that accepts it; if none does, the error of the only one."""
    for reader in readers:
        try:
            return reader.decode(value)
        except WireError as error:
            if error.path:
                raise
    raise _refused(expected, value)


def _one_of(messages: Sequence[type[Any]]) -> _Reader:
    if len(messages) == 1:
        return _reader(messages[0])
    field, by_value = _discriminator(messages)
    names = " or ".join(message.__name__ for message in messages)
    expected = "one of " + ", ".join(map(repr, by_value))

    def decode(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _refused(names, value)
        given = value.get(field)
        message = by_value.get(given) if isinstance(given, str) else None
        if message is None:
            raise _refused(expected, given).below(field)
        return _reader(message).decode(value)

    return _Reader(names, decode)


def _discriminator(messages: Sequence[type[Any]]) -> tuple[str, dict[str, type[Any]]]:
    literals = []
    for message in messages:
        hints = get_type_hints(message)
        literals.append({name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal})
    for name in literals[0]:
        values = [value for found in literals for value in found.get(name, ())]
        if all(name in found for found in literals) and len(set(values)) == len(values):
            pairs = zip(messages, literals, strict=True)
            return name, {value: message for message, found in pairs for value in found[name]}
    raise TypeError(f"nothing tells {', '.join(message.__name__ for message in messages)} apart")


def _message(kind: Any) -> _Reader:
    hints = get_type_hints(kind, include_extras=True)
    readers = [(item, _reader(hints[item.name])) for item in fields(kind)]
    parts = [(item.name, reader.taken_as_is, reader.decode, _default(item)) for item, reader in readers]
    names = frozenset(name for name, _, _, _ in parts)
    checked = hasattr(kind, "__post_init__")

    def decode(value: Any) -> Any:
        # `dict` first: the check against the abstract type takes longer than a field.
        if type(value) is not dict and not isinstance(value, Mapping):
            raise _refused(kind.__name__, value)
        found = {}
        absent = 0
        for name, as_is, decode_part, default in parts:
            try:
                inner = value[name]
            except KeyError:
                if default is None:
                    raise WireError(f"{kind.__name__} needs this field", (name,)) from None
                found[name] = default()
                absent += 1
                continue
            if type(inner) in as_is:
                found[name] = inner
                continue
            try:
                found[name] = decode_part(inner)
            except WireError as error:
                raise error.below(name) from None
        if len(value) + absent != len(parts) and not _lenient.get():
            unknown = next(str(name) for name in value if name not in names)
            raise WireError(f"{kind.__name__} has no such field", (unknown,))
        # As its __init__ would, which takes several times as long for a frozen class.
        made = object.__new__(kind)
        made.__dict__.update(found)
        if checked:
            try:
                made.__post_init__()
            except WireError:
                raise
            except ValueError as error:
                raise WireError(str(error)) from error
        return made

    return _Reader(kind.__name__, decode)


def _default(item: Field[Any]) -> Callable[[], Any] | None:
    if item.default_factory is not MISSING:
        return item.default_factory
    if item.default is not MISSING:
        return lambda: item.default
    return None
