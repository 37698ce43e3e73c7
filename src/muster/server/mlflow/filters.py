"""MLflow's search language: `metrics.loss < 0.1 AND tags.kind LIKE 'a%'`, and the order of results. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from typing import TypeVar

from muster.server.mlflow.protocol import INVALID, MlflowError

T = TypeVar("T")
Value = str | float | None
Lookup = Callable[[T, str, str], Value]
"""Returns an item's value of a kind (`metrics`, `params`, `tags`, `attributes`) and name."""

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*")
      | (?P<number>-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)
      | (?P<op>!=|>=|<=|=|>|<|\(|\)|,)
      | (?P<word>[A-Za-z_][\w.\-/]*(?:`[^`]*`|"[^"]*")?|`[^`]*`)
    )""",
    re.VERBOSE,
)
_KINDS = {
    "metric": "metrics", "metrics": "metrics",
    "param": "params", "params": "params", "parameter": "params", "parameters": "params",
    "tag": "tags", "tags": "tags",
    "attribute": "attributes", "attributes": "attributes", "attr": "attributes", "run": "attributes",
    "dataset": "datasets", "datasets": "datasets",
}  # fmt: skip
_WORD_OPS = {"LIKE", "ILIKE", "IN", "NOT", "IS"}


@dataclass(frozen=True)
class Condition:
    """One comparison."""

    kind: str
    name: str
    op: str
    value: str | float | tuple[str, ...] | None

    def holds(self, found: Value) -> bool:
        if self.op == "IS NULL":
            return found is None
        if self.op == "IS NOT NULL":
            return found is not None
        if found is None:
            return False
        if self.op in ("IN", "NOT IN"):
            assert isinstance(self.value, tuple)
            return (str(found) in self.value) == (self.op == "IN")
        if self.op in ("LIKE", "ILIKE"):
            return _like(str(self.value), str(found), self.op == "ILIKE")
        return _compare(self.op, found, self.value)


def parse(text: str | None) -> list[Condition]:
    """The conditions of a filter, all of which must hold."""
    tokens = _Tokens(text or "")
    found: list[Condition] = []
    while tokens.left:
        found.append(tokens.condition())
        if tokens.left and tokens.take().upper() != "AND":
            raise _bad(text or "", "conditions are joined by AND")
    return found


def select(items: Sequence[T], conditions: Sequence[Condition], lookup: Lookup[T]) -> list[T]:
    return [item for item in items if all(one.holds(lookup(item, one.kind, one.name)) for one in conditions)]


def order(items: Sequence[T], clauses: Sequence[str], lookup: Lookup[T]) -> list[T]:
    """Items in the order of clauses such as `metrics.loss DESC`; those without a value come last."""
    ordered = list(items)
    for clause in reversed(clauses):
        words = clause.strip().rsplit(maxsplit=1)
        descending = len(words) > 1 and words[1].upper() == "DESC"
        bare = words[0] if len(words) > 1 and words[1].upper() in ("ASC", "DESC") else clause.strip()
        kind, name = _identifier(bare)
        values = {id(item): lookup(item, kind, name) for item in ordered}

        def compare(a: T, b: T, values: Mapping[int, Value] = values, descending: bool = descending) -> int:
            return _order(values[id(a)], values[id(b)], descending)

        ordered.sort(key=cmp_to_key(compare))
    return ordered


class _Tokens:
    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[tuple[str, str]] = []
        begin = 0
        while text[begin:].strip():
            match = _TOKEN.match(text, begin)
            if match is None:
                raise _bad(text, f"{text[begin:].strip()[:20]!r} is not understood")
            kind = match.lastgroup or ""
            self._found.append((kind, match[kind]))
            begin = match.end()

    @property
    def left(self) -> bool:
        return bool(self._found)

    def take(self) -> str:
        if not self._found:
            raise _bad(self._text, "it ends too early")
        return self._found.pop(0)[1]

    def condition(self) -> Condition:
        kind, name = _identifier(self.take())
        op = self.take().upper()
        if op == "NOT":
            op = f"NOT {self.take().upper()}"
        if op == "IS":
            word = self.take().upper()
            op = "IS NULL" if word == "NULL" else f"IS NOT {self.take().upper()}"
            return Condition(kind, name, op, None)
        if op in ("IN", "NOT IN"):
            return Condition(kind, name, op, self._list())
        if op not in ("=", "!=", ">", "<", ">=", "<=", "LIKE", "ILIKE"):
            raise _bad(self._text, f"{op!r} is no comparison")
        return Condition(kind, name, op, self._value())

    def _value(self) -> str | float:
        if not self._found:
            raise _bad(self._text, "a value is missing")
        kind, text = self._found.pop(0)
        return float(text) if kind == "number" else _unquoted(text)

    def _list(self) -> tuple[str, ...]:
        if self.take() != "(":
            raise _bad(self._text, "IN takes a list in brackets")
        found = []
        while True:
            value = self._value()
            found.append(value if isinstance(value, str) else f"{value:g}")
            if (after := self.take()) == ")":
                return tuple(found)
            if after != ",":
                raise _bad(self._text, "the values of IN are parted by commas")


def _identifier(text: str) -> tuple[str, str]:
    prefix, dot, name = text.strip().partition(".")
    if dot and prefix.lower() in _KINDS:
        return _KINDS[prefix.lower()], _unquoted(name)
    return "attributes", _unquoted(text)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"`" else text


def _like(pattern: str, found: str, any_case: bool) -> bool:
    parts = [".*" if letter == "%" else "." if letter == "_" else re.escape(letter) for letter in pattern]
    return re.fullmatch("".join(parts), found, (re.IGNORECASE if any_case else 0) | re.DOTALL) is not None


def _compare(op: str, found: str | float, wanted: str | float | tuple[str, ...] | None) -> bool:
    if isinstance(found, float) or isinstance(wanted, float):
        try:
            left, right = float(found), float(wanted)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return op == "!="
        result = _sign(left, right)
    else:
        result = _sign(str(found), str(wanted))
    if result is None:
        return op == "!="
    return {
        "=": result == 0, "!=": result != 0, ">": result > 0, "<": result < 0, ">=": result >= 0, "<=": result <= 0,
    }[op]  # fmt: skip


def _sign(left: str | float, right: str | float) -> int | None:
    if left == right:
        return 0
    if left < right:  # type: ignore[operator]
        return -1
    return 1 if left > right else None  # type: ignore[operator]


def _order(a: Value, b: Value, descending: bool) -> int:
    if a is None or b is None or a != a or b != b:
        return (a is None or a != a) - (b is None or b != b)
    if isinstance(a, float) != isinstance(b, float):
        a, b = str(a), str(b)
    sign = (a > b) - (a < b)  # type: ignore[operator]
    return -sign if descending else sign


def _bad(text: str, why: str) -> MlflowError:
    return MlflowError(INVALID, f"Invalid filter string {text[:200]!r}: {why}")
