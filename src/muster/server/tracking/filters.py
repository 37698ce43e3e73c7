"""Which runs of a list are wanted, as conditions of the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Text, cast, func, literal

from muster.server.database import tables

_RUNS = tables.runs
TEXT_MOST = 200
_WORDS_MOST = 8


@dataclass(frozen=True)
class RunFilter:
    """What is not given keeps no run out."""

    experiment: str | None = None
    status: Sequence[str] = ()
    since: float | None = None
    """Submitted at that time or later."""
    tags: Sequence[str] = ()
    """`NAME=VALUE`, or `NAME` for any value; each must fit."""
    person: str | None = None
    cluster: str | None = None
    text: str | None = None
    """Words that each must stand somewhere in what people call the run."""

    def conditions(self) -> list[ColumnElement[bool]]:
        found: list[ColumnElement[bool]] = []
        if self.experiment:
            found.append(_RUNS.c.experiment == self.experiment)
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
        words = (self.text or "").split()[:_WORDS_MOST]
        if words:
            called = _called()
            found += [called.contains(word.lower(), autoescape=True) for word in words]
        return found


def _called() -> ColumnElement[str]:
    """All that people call a run, in small letters."""
    columns = _RUNS.c
    texts: ColumnElement[str] = columns.id
    for part in (columns.display_name, columns.name, columns.experiment, columns.submitted_by, columns.description):
        texts = texts + literal(" ") + func.coalesce(part, "")
    return func.lower(texts + literal(" ") + cast(columns.tags, Text))
