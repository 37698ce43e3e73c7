"""Filters of runs, as conditions of the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Boolean, ColumnElement, Text, cast, literal, or_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.visitors import InternalTraversal

from muster.server.database import tables
from muster.wire import states

_RUNS = tables.runs
TEXT_MOST = 200
_WORDS_MOST = 8


@dataclass(frozen=True)
class RunFilter:
    """A filter of runs; a field that is not set matches all."""

    experiment: str | None = None
    status: Sequence[str] = ()
    since: float | None = None
    """Submitted at that time or later."""
    tags: Sequence[str] = ()
    """`NAME=VALUE`, or `NAME` for any value; each must fit."""
    person: str | None = None
    cluster: str | None = None
    text: str | None = None
    """Words that must each occur in the run's names and descriptions."""
    checks: bool = True
    """Include runs of `muster cluster check`."""

    def conditions(self) -> list[ColumnElement[bool]]:
        found: list[ColumnElement[bool]] = []
        if self.experiment:
            found.append(_RUNS.c.experiment == self.experiment)
        if not self.checks:
            found.append(_RUNS.c.experiment != states.CHECKS)
        if self.status:
            found.append(_RUNS.c.status.in_(self.status))
        if self.since is not None:
            found.append(_RUNS.c.created_at >= self.since)
        if self.person:
            found.append(_RUNS.c.submitted_by == self.person)
        if self.cluster:
            found.append(_RUNS.c.compute == self.cluster)
        for tag in self.tags:
            name, equals, value = tag.partition("=")
            kept = _RUNS.c.tags[name].as_string()
            found.append(kept == value if equals else kept.is_not(None))
        found += map(_called, (self.text or "").split()[:_WORDS_MOST])
        return found


class _Has(ColumnElement[bool]):
    """Whether a column contains a text, ignoring case."""

    inherit_cache = True
    type = Boolean()
    _traverse_internals = [
        ("column", InternalTraversal.dp_clauseelement),
        ("pattern", InternalTraversal.dp_clauseelement),
    ]

    def __init__(self, column: ColumnElement[Any], text: str) -> None:
        escaped = text.replace("/", "//").replace("%", "/%").replace("_", "/_")
        self.column, self.pattern = column, literal(f"%{escaped}%")


@compiles(_Has)
def _with_ilike(element: _Has, compiler: SQLCompiler, **options: Any) -> str:
    column, pattern = (compiler.process(part, **options) for part in (element.column, element.pattern))
    return f"{column} ILIKE {pattern} ESCAPE '/'"


@compiles(_Has, "sqlite")
def _with_like(element: _Has, compiler: SQLCompiler, **options: Any) -> str:
    # SQLite's LIKE ignores the case of ASCII letters; lower() of each text would take twice the time.
    column, pattern = (compiler.process(part, **options) for part in (element.column, element.pattern))
    return f"{column} LIKE {pattern} ESCAPE '/'"


def _called(word: str) -> ColumnElement[bool]:
    """Whether a word occurs in a run's names and descriptions."""
    columns = _RUNS.c
    texts = (columns.id, columns.display_name, columns.name, columns.experiment, columns.submitted_by)
    return or_(*(_Has(column, word) for column in (*texts, columns.description, cast(columns.tags, Text))))
