"""Reads what a cluster did: Slurm's `sacct`, a table of start, length and GPUs, or pods with creation and deletion."""

from __future__ import annotations

import csv
import io
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from muster.control.estimates.book import Traits
from muster.control.scheduling.model import Gang, Need
from muster.errors import JobError
from muster.simulation.jobs import CLUSTER, DAY_S, Job, round_limit

_FORMATS = (
    "It must be an export of Slurm's sacct, a CSV file with the columns start, length and gpus, or one with num_gpu, "
    "creation_time and deletion_time; see `muster simulate --help`."
)
_GPUS = re.compile(r"gres/gpu(?::[^=,]+)?=(\d+)")
_SPAN = re.compile(r"(?:(\d+)-)?(\d+):(\d\d)(?::(\d\d)(?:\.\d+)?)?$")
_QUIET = 0.1
_MOST_SHOWN = 1000
_NEVER = ("", "Unknown", "None")


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
    """From coarse to fine, without its size."""


@dataclass(frozen=True)
class Selection:
    """Which part of a trace is taken, and how it is read."""

    from_day: float | None = None
    """None: from the first day that is not almost empty."""
    days: float | None = None
    most_jobs: int | None = None
    longest_s: float = 7 * DAY_S
    """What ran longer counts as if it had been ended then."""
    seed: int = 7


@dataclass(frozen=True)
class Trace:
    """The jobs that are simulated, and what was left out."""

    jobs: tuple[Job, ...]
    days: float
    left_out: tuple[str, ...] = ()


def read(text: str, name: str) -> list[Entry]:
    """Every job of a trace, in order of submission; `name` is for messages."""
    first = text.lstrip().split("\n", 1)[0]
    separator = "|" if "|" in first else ","
    if re.fullmatch(r"[\d.\s,|-]+", first):
        text = separator.join(("start", "length", "gpus")) + "\n" + text
    rows = csv.DictReader(io.StringIO(text.lstrip()), delimiter=separator)
    columns = {column.strip().lower() for column in rows.fieldnames or ()}
    for needed, reader in _READERS:
        if needed <= columns:
            entries = list(_entries(rows, reader, name))
            if not entries:
                raise JobError(f"{name} has no job that used a GPU and has ended", _FORMATS)
            return sorted(entries, key=lambda entry: entry.submitted_at)
    shown = ", ".join(sorted(columns))
    if not shown.isprintable() or "\ufffd" in shown or len(shown) > _MOST_SHOWN:
        raise JobError(f"{name} is not a table of jobs", _FORMATS)
    raise JobError(f"{name} has the columns {shown}" if shown else f"{name} is empty", _FORMATS)


def select(entries: Sequence[Entry], chosen: Selection, gpus_per_node: int, num_gpus: int) -> Trace:
    """The jobs of the chosen part as gangs of this cluster; those that declared no limit get one, as people guess."""
    left_out: list[str] = []
    begin = entries[0].submitted_at + DAY_S * (_busy_from(entries) if chosen.from_day is None else chosen.from_day)
    end = float("inf") if chosen.days is None else begin + chosen.days * DAY_S
    inside = [entry for entry in entries if begin <= entry.submitted_at < end]
    early = sum(entry.submitted_at < begin for entry in entries)
    if early and chosen.from_day is None:
        left_out.append(f"{early} jobs of almost empty days at the beginning (`--from-day 0` takes them)")
    inside = inside[: chosen.most_jobs]
    large = sum(entry.num_gpus > num_gpus for entry in inside)
    if large:
        left_out.append(f"{large} jobs with more than {num_gpus} GPUs")
    cut = sum(entry.run_s > chosen.longest_s for entry in inside)
    if cut:
        left_out.append(f"what {cut} jobs did after {chosen.longest_s / DAY_S:g} days (`--longest-days`)")
    inside = [entry for entry in inside if entry.num_gpus <= num_gpus]
    if not inside:
        raise JobError("no job of the trace is in the chosen part", "Choose another `--from-day` or `--days`.")
    dice = random.Random(chosen.seed)
    begin = inside[0].submitted_at
    jobs = [
        _job(number, replace(entry, run_s=min(entry.run_s, chosen.longest_s)), begin, gpus_per_node, dice)
        for number, entry in enumerate(inside)
    ]
    days = chosen.days or max(jobs[-1].gang.queued_at / DAY_S, 1 / 24)
    return Trace(tuple(jobs), days, tuple(left_out))


def nodes_for(entries: Sequence[Entry], gpus_per_node: int) -> int:
    """Enough nodes for the largest job, and so many that they would be busy for 85 % of the time."""
    span_s = max(DAY_S, entries[-1].submitted_at - entries[0].submitted_at)
    work = sum(min(entry.run_s, 7 * DAY_S) * entry.num_gpus for entry in entries)
    wanted = round(work / span_s / 0.85 / gpus_per_node)
    return max(1, wanted, -(-max(entry.num_gpus for entry in entries) // gpus_per_node))


def _busy_from(entries: Sequence[Entry]) -> int:
    """The first day with at least a tenth of the jobs of the busiest one."""
    begin = entries[0].submitted_at
    counts: dict[int, int] = {}
    for entry in entries:
        day = int((entry.submitted_at - begin) / DAY_S)
        counts[day] = counts.get(day, 0) + 1
    most = max(counts.values())
    return next(day for day in sorted(counts) if counts[day] >= _QUIET * most)


def _job(number: int, entry: Entry, begin: float, gpus_per_node: int, dice: random.Random) -> Job:
    nodes = entry.num_nodes or -(-entry.num_gpus // gpus_per_node)
    each = -(-entry.num_gpus // nodes)
    if each > gpus_per_node:
        nodes, each = -(-entry.num_gpus // gpus_per_node), gpus_per_node
    guessed = round_limit(entry.run_s * dice.uniform(1.1, 3.0))
    name = f"j{number}"
    gang = Gang(
        name,
        name,
        CLUSTER,
        Need(nodes, each, each),
        queued_at=entry.submitted_at - begin,
        seq=number,
        user=entry.user,
        limit_s=max(entry.limit_s, entry.run_s) if entry.limit_s else guessed,
    )
    return Job(gang, max(1.0, entry.run_s), ((nodes, each), *entry.traits))


def _entries(
    rows: csv.DictReader[str], reader: Callable[[Mapping[str, str]], Entry | None], name: str
) -> Iterator[Entry]:
    for number, row in enumerate(rows, 2):
        fields = {(key or "").strip().lower(): (value or "").strip() for key, value in row.items()}
        try:
            entry = reader(fields)
        except (ValueError, KeyError) as error:
            raise JobError(f"{name}, line {number}: {error}", _FORMATS) from error
        if entry is not None and entry.num_gpus > 0 and entry.run_s > 0:
            yield entry


def _slurm(row: Mapping[str, str]) -> Entry | None:
    """A line of `sacct`; steps of a job and jobs that never ran are none."""
    if "." in row.get("jobid", "") or row["start"] in _NEVER:
        return None
    began = _cell(row, "start", _moment)
    if row.get("end", "") not in _NEVER:
        run_s = _cell(row, "end", _moment) - began
    elif row.get("elapsedraw") or row.get("elapsed"):
        run_s = _cell(row, "elapsedraw" if row.get("elapsedraw") else "elapsed", _span)
    else:
        return None
    resources = row.get("reqtres") or row.get("alloctres") or ""
    found = _GPUS.search(resources)
    limit = row.get("timelimitraw") or row.get("timelimit") or ""
    limit_s = float(limit) * 60 if limit.isdigit() else _span(limit) if _SPAN.match(limit) else None
    who = row.get("user") or row.get("account") or ""
    nodes = "nnodes" if row.get("nnodes") else "allocnodes"
    return Entry(
        _cell(row, "submit", _moment),
        run_s,
        int(found[1]) if found else 0,
        int(_cell(row, nodes, _count)) if row.get(nodes) else 1,
        limit_s,
        who,
        (row.get("partition", ""), who, row.get("jobname", "")),
    )


def _table(row: Mapping[str, str]) -> Entry | None:
    """Start, length and GPUs, with what else is known."""
    return Entry(
        _cell(row, "start", _moment),
        _cell(row, "length", _span),
        int(_cell(row, "gpus", _count)),
        int(_cell(row, "nodes", _count)) if row.get("nodes") else None,
        _cell(row, "limit", _span) if row.get("limit") else None,
        row.get("user", ""),
        (row.get("user", ""), row.get("experiment", ""), row.get("name", "")),
    )


def _pods(row: Mapping[str, str]) -> Entry | None:
    """Pods of a cluster with their class; a part of a GPU counts as one."""
    began = _cell(row, "creation_time", _moment)
    traits = (row.get("qos", ""), row.get("gpu_milli", ""))
    run_s = _cell(row, "deletion_time", _moment) - began
    return Entry(began, run_s, int(_cell(row, "num_gpu", _count)), traits=traits)


def _cell(row: Mapping[str, str], column: str, parse: Callable[[str], float]) -> float:
    """The value of a column; what cannot be read is named with its column."""
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
        return float(text)
    except ValueError:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _span(text: str) -> float:
    """Seconds, or days-hours:minutes:seconds as Slurm writes them."""
    found = _SPAN.match(text)
    if not found:
        return float(text)
    days, first, second, third = found.groups()
    if third is None and days is None:
        return int(first) * 60.0 + int(second)
    return int(days or 0) * DAY_S + int(first) * 3600.0 + int(second) * 60.0 + int(third or 0)


_WANTED: Mapping[Callable[[str], float], str] = {
    _moment: "a number of seconds or a date",
    _span: "a number of seconds or days-hours:minutes:seconds",
    _count: "a number of 0 or more",
}
_READERS = (
    ({"submit", "start"}, _slurm),
    ({"creation_time", "deletion_time", "num_gpu"}, _pods),
    ({"start", "length", "gpus"}, _table),
)
