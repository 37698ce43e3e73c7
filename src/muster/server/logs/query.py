"""The part of a run's logs that a request asks for."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from muster import errors
from muster.wire.stream import LogQuery


async def _query(
    rank: int | None = None,
    attempt: int | None = None,
    from_attempt: int | None = None,
    tail: int | None = None,
    head: int | None = None,
    first_line: int | None = None,
    since: float | None = None,
    ago_s: float | None = None,
    grep: str | None = None,
) -> LogQuery:
    try:
        return LogQuery(rank, attempt, from_attempt, tail, head, first_line, since, ago_s, grep)
    except ValueError as error:
        raise errors.JobError(str(error)) from error


LogQueryOf = Annotated[LogQuery, Depends(_query)]
