"""The columns of a trace: Slurm's `sacct`, tables of start, length and GPUs, pods with creation and deletion."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from muster.control.estimates.book import Traits
from muster.simulation.jobs import DAY_S

Row = Mapping[str, str]

NO_GPUS = "without GPUs"
UNFINISHED = "that had not started or not ended"
BACKWARDS = "of negative length"

_GPUS = re.compile(r"gres/gpu=(\d+)")
_GPUS_BY_KIND = re.compile(r"gres/gpu:[^=,]+=(\d+)")
_GPUS_OF_A_NODE = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::[^:,=]+)?[:=](\d+)")
_SPAN = re.compile(r"(?:(\d+)(?:-| days?,? ))?(\d+):(\d\d)(?::(\d\d)(?:\.\d+)?)?$")
_UNIT = re.compile(
    r"(\d+(?:\.\d+)?)\s*(s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?)\s*", re.IGNORECASE
)
_UNITS = re.compile(f"(?:{_UNIT.pattern})+", re.IGNORECASE)
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY_S}
_TOO_LATE_S = 1e11
"""Larger numbers are milliseconds, or meaningless."""
_NEVER = ("", "Unknown", "None")
_NO_LIMIT = ("", "unlimited", "none", "0", "-1", "inf")
_OTHER_NAMES = {
    "submit": ("submitted", "submit_time", "submission_time", "submitted_at", "queued_at", "arrival", "arrival_time"),
    "start": ("started", "start_time", "started_at", "begin"),
    "end": ("ended", "end_time", "ended_at", "finished_at"),
    "length": ("duration", "runtime", "run_time", "seconds", "duration_s", "run_s"),
    "gpus": ("gpu", "num_gpu", "num_gpus", "n_gpus", "ngpus", "gpu_count"),
    "limit": ("time_limit", "limit_s", "walltime"),
    "nodes": ("num_nodes", "node_count"),
    "user": ("username", "owner"),
}
_USUAL = {other: name for name, others in _OTHER_NAMES.items() for other in others}


@dataclass(frozen=True)
class Entry:
    """One job of a trace."""

    submitted_at: float
    run_s: float
    num_gpus: int
    num_nodes: int | None = None
    limit_s: float | None = None
    user: str = ""
    traits: Traits = ()
    """From coarse to fine, without the size."""


Reader = Callable[[Row], Entry | str | None]
"""The job of a row; the reason why it is left out; or None for a row that is a step of another job."""


def known_as(columns: Sequence[str]) -> list[str]:
    """The names by which columns are known here: alternative names count if none has the usual one."""
    names = [column.strip().lower().replace(" ", "_").replace("-", "_") for column in columns]
    return [name if _USUAL.get(name, name) in names else _USUAL[name] for name in names]


def reader_for(columns: Iterable[str]) -> Reader | None:
    """The reader for a table with these columns; None if there is none."""
    given = set(columns)
    return next((reader for needed, reader in _READERS if any(not _lacks(names, given) for names in needed)), None)


def lacking(columns: Iterable[str]) -> list[str]:
    """What a table without a reader lacks: alternatives of which one is enough, the nearest only."""
    given = set(columns)
    nearest = [min(needed, key=lambda names: len(_lacks(names, given))) for needed, _ in _READERS]
    lacks = [_lacks(names, given) for names in nearest if len(_lacks(names, given)) < len(names)]
    fewest = min(map(len, lacks), default=0)
    return list(dict.fromkeys(" and ".join(names) for names in lacks if len(names) == fewest))


def _lacks(names: Iterable[str], given: Collection[str]) -> list[str]:
    return sorted(name for name in names if name.lower() not in given)


def _slurm(row: Row) -> Entry | str | None:
    """A line of `sacct`."""
    if _is_step(row):
        return None
    spent = "elapsedraw" if row.get("elapsedraw") else "elapsed"
    has_ended = row.get("end", "") not in _NEVER
    if row["start"] in _NEVER or not (has_ended or row.get(spent)):
        return UNFINISHED
    ran_s = _from_start_to_end(row) if has_ended else _cell(row, spent, _span)
    nodes = _nodes(row, "nnodes" if row.get("nnodes") else "allocnodes") or 1
    who = row.get("user") or row.get("account") or ""
    limit = row.get("timelimitraw") or row.get("timelimit") or ""
    limit_s = float(limit) * 60 if limit.isdigit() else _span(limit) if _SPAN.match(limit) else None
    traits = (row.get("partition", ""), who, row.get("jobname", ""))
    return _entry(_cell(row, "submit", _moment), ran_s, _slurm_gpus(row, nodes), nodes, limit_s, who, traits)


def _is_step(row: Row) -> bool:
    """Steps of jobs have no user and no partition, and are often exported without their step number."""
    if "." in row.get("jobid", ""):
        return True
    if row.get("user") or row.get("partition"):
        return False
    return "user" in row or row.get("jobname") in ("batch", "extern")


def _slurm_gpus(row: Row, num_nodes: int) -> int:
    """The GPUs that were requested, or allocated without a request; older exports give them per node."""
    for resources in (row.get("reqtres", ""), row.get("alloctres", "")):
        if found := _GPUS.search(resources):
            return int(found[1])
        if kinds := _GPUS_BY_KIND.findall(resources):
            return sum(map(int, kinds))
    for resources in (row.get("reqgres", ""), row.get("allocgres", "")):
        if kinds := _GPUS_OF_A_NODE.findall(resources):
            return num_nodes * sum(map(int, kinds))
    return 0


def _table(row: Row) -> Entry | str:
    """Start, length and GPUs, with optional columns; without its own column, submission is the start."""
    if not row.get("length") and (row.get("start", "") in _NEVER or row.get("end", "") in _NEVER):
        return UNFINISHED
    ran_s = _cell(row, "length", _span) if row.get("length") else _from_start_to_end(row)
    at = _cell(row, "submit" if row.get("submit") else "start", _moment)
    limit_s = _cell(row, "limit", _span) if row.get("limit", "").lower() not in _NO_LIMIT else None
    traits = (row.get("user", ""), row.get("experiment", ""), row.get("name", ""))
    return _entry(at, ran_s, _gpus(row), _nodes(row, "nodes"), limit_s, row.get("user", ""), traits)


def _pods(row: Row) -> Entry | str:
    """Pods of a cluster with their class."""
    if row["deletion_time"] in _NEVER:
        return UNFINISHED
    began = _cell(row, "creation_time", _moment)
    traits = (row.get("qos", ""), row.get("gpu_milli", ""))
    return _entry(began, _cell(row, "deletion_time", _moment) - began, _gpus(row), traits=traits)


def _entry(
    submitted_at: float,
    run_s: float,
    num_gpus: int,
    num_nodes: int | None = None,
    limit_s: float | None = None,
    user: str = "",
    traits: Traits = (),
) -> Entry | str:
    if num_gpus == 0:
        return NO_GPUS
    if run_s <= 0:
        return BACKWARDS if run_s < 0 else UNFINISHED
    return Entry(submitted_at, run_s, num_gpus, num_nodes, limit_s, user, traits)


def _from_start_to_end(row: Row) -> float:
    return _cell(row, "end", _moment) - _cell(row, "start", _moment)


def _nodes(row: Row, column: str) -> int | None:
    return int(_cell(row, column, _count)) or None if row.get(column) else None


def _gpus(row: Row) -> int:
    """A part of a GPU counts as one."""
    return math.ceil(_cell(row, "gpus", _count))


def _cell(row: Row, column: str, parse: Callable[[str], float]) -> float:
    """The value of a column; an error names the column."""
    try:
        value = parse(row[column])
    except (ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"column {column}: {row[column]!r} is not {_WANTED[parse]}")
    return value


def _count(text: str) -> float:
    value = float(text)
    return math.nan if value < 0 else value


def _moment(text: str) -> float:
    try:
        return float(text) if abs(float(text)) < _TOO_LATE_S else math.nan
    except ValueError:
        at = datetime.fromisoformat(text.removesuffix(" UTC"))
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _span(text: str) -> float:
    """Seconds, days-hours:minutes:seconds as Slurm and Python write them, or numbers with their units."""
    if _UNITS.fullmatch(text):
        return sum(float(number) * _UNIT_S[unit[0].lower()] for number, unit in _UNIT.findall(text))
    found = _SPAN.match(text)
    if not found:
        return float(text)
    days, first, second, third = found.groups()
    if third is None and days is None:
        return int(first) * 60.0 + int(second)
    return int(days or 0) * DAY_S + int(first) * 3600.0 + int(second) * 60.0 + int(third or 0)


_WANTED: Mapping[Callable[[str], float], str] = {
    _moment: "a number of seconds (not milliseconds) or a date such as 2026-03-01T10:00:00",
    _span: "a number of seconds, one with its unit such as 90m, or days-hours:minutes:seconds",
    _count: "a number of 0 or more",
}
_PODS = [{"creation_time", "deletion_time", "gpus"}]
_TABLE = [{"start", "length", "gpus"}, {"submit", "length", "gpus"}, {"start", "end", "gpus"}]
_SACCT = [
    {"Submit", "Start", end, gpus}
    for end in ("End", "ElapsedRaw", "Elapsed")
    for gpus in ("ReqTRES", "AllocTRES", "ReqGRES", "AllocGRES")
]
_READERS: tuple[tuple[list[set[str]], Reader], ...] = ((_PODS, _pods), (_TABLE, _table), (_SACCT, _slurm))
"""Each with the sets of columns that it needs, of which one is enough."""
