"""Reads the history of a cluster, and takes a part of it as gangs of a simulated one."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from muster.control.scheduling.model import Gang, Need
from muster.errors import JobError
from muster.simulation.columns import Entry, known_as, lacking, reader_for
from muster.simulation.jobs import CLUSTER, DAY_S, Job, round_limit
from muster.simulation.lines import fields, is_fixed_width, rows

_FORMATS = (
    "It must be an export of Slurm's sacct, a CSV file with the columns start, length and gpus, or one with num_gpu, "
    "creation_time and deletion_time; see `muster simulate --help`."
)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:]+")
_CORRECT = "Correct or remove that line; `muster simulate --help` describes the columns."
_QUIET = 0.1
_MOST_SHOWN = 1000
_MOST_DAYS = 3660
MOST_NODES = 100_000
_UNREADABLE = 0.01
"""The share of the lines that may be damaged."""


@dataclass(frozen=True)
class Selection:
    """The part of a trace that is taken, and how it is read."""

    from_day: float | None = None
    """None: from the first day that is not almost empty."""
    days: float | None = None
    most_jobs: int | None = None
    longest_s: float = 7 * DAY_S
    """Longer jobs count as if they had been ended then."""
    seed: int = 7


@dataclass(frozen=True)
class Trace:
    """The jobs to simulate, and notes on those left out."""

    jobs: tuple[Job, ...]
    days: float
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Past:
    """Every job of a trace, in order of submission, and notes on the other lines."""

    entries: tuple[Entry, ...]
    left_out: tuple[str, ...] = ()


def read(text: str, name: str) -> Past:
    """The jobs of a trace; `name` is for messages."""
    written, lines = rows(text)
    columns = known_as(written)
    reader = reader_for(columns)
    if reader is None:
        raise _no_trace(text, written, lacking(columns), name)
    entries: list[Entry] = []
    others: Counter[str] = Counter()
    unreadable: list[str] = []
    try:
        for number, values in lines:
            try:
                found = reader(fields(values, columns))
            except ValueError as error:
                unreadable.append(f"line {number}: {error}")
                continue
            if isinstance(found, Entry):
                entries.append(found)
            elif found is not None:
                others[found] += 1
    except ValueError as error:
        raise JobError(f"{name}, {error}", _CORRECT) from error
    if len(unreadable) > _UNREADABLE * (len(entries) + others.total()):
        raise JobError(f"{name}, {unreadable[0]}", _CORRECT)
    left_out = [f"{_jobs(count)} {why}" for why, count in sorted(others.items())]
    if not entries:
        instead = (
            f"no job that used a GPU and has ended ({', '.join(left_out)})" if left_out else "no job below its header"
        )
        raise JobError(f"{name} has {instead}", "Export a longer time; `muster simulate --help` describes the file.")
    if unreadable:
        left_out.append(f"lines that cannot be read: {len(unreadable):,} (the first is {unreadable[0]})")
    return Past(tuple(sorted(entries, key=lambda entry: entry.submitted_at)), tuple(left_out))


def _no_trace(text: str, columns: Sequence[str], missing: Sequence[str], name: str) -> JobError:
    shown = ", ".join(sorted(columns))
    if is_fixed_width(text):
        return JobError(f"{name} is aligned with spaces", "Export it with `sacct -P`; see `muster simulate --help`.")
    if any(_MOMENT.fullmatch(column) for column in columns):
        return JobError(f"{name} has no header line", "Export it without `-n` (`--noheader`). " + _FORMATS)
    if not shown.isprintable() or "\ufffd" in shown or len(shown) > _MOST_SHOWN or text.lstrip()[:1] in ("{", "["):
        return JobError(f"{name} is not a table of jobs", _FORMATS)
    if missing:
        return JobError(f"{name} has no column {' or '.join(missing)}; it has {shown}", _FORMATS)
    return JobError(f"{name} has the columns {shown}" if shown else f"{name} is empty", _FORMATS)


def select(entries: Sequence[Entry], chosen: Selection, gpus_per_node: int, num_gpus: int) -> Trace:
    """The jobs of the chosen part as gangs of this cluster; those without a limit get one, as people guess."""
    left_out: list[str] = []
    inside = part(entries, chosen)
    early = sum(entry.submitted_at < inside[0].submitted_at for entry in entries) if inside else 0
    if early and chosen.from_day is None:
        left_out.append(f"{_jobs(early)} of almost empty days at the beginning (`--from-day 0` takes them)")
    large = sum(entry.num_gpus > num_gpus for entry in inside)
    if large:
        left_out.append(f"{_jobs(large)} with more than {num_gpus} GPUs")
    cut = sum(entry.run_s > chosen.longest_s for entry in inside)
    if cut:
        left_out.append(f"what {_jobs(cut)} did after {chosen.longest_s / DAY_S:g} days (`--longest-days`)")
    inside = [entry for entry in inside if entry.num_gpus <= num_gpus]
    if not inside:
        why = f" (left out: {'; '.join(left_out)})" if left_out else ""
        raise JobError(
            f"no job of the trace is in the chosen part{why}",
            "Choose another `--from-day` or `--days`, or more `--nodes` or `--gpus`.",
        )
    dice = random.Random(chosen.seed)
    begin = inside[0].submitted_at
    jobs = [
        _job(number, replace(entry, run_s=min(entry.run_s, chosen.longest_s)), begin, gpus_per_node, num_gpus, dice)
        for number, entry in enumerate(inside)
    ]
    days = chosen.days or max(jobs[-1].gang.queued_at / DAY_S, 1 / 24)
    if days > _MOST_DAYS:
        raise JobError(
            f"the trace is of {days:,.0f} days, and at most {_MOST_DAYS:,} are simulated",
            "Times are in seconds: are these in milliseconds? `--from-day` and `--days` take a part.",
        )
    return Trace(tuple(jobs), days, tuple(left_out))


def part(entries: Sequence[Entry], chosen: Selection) -> list[Entry]:
    """The jobs of the chosen part."""
    begin = entries[0].submitted_at + DAY_S * (_busy_from(entries) if chosen.from_day is None else chosen.from_day)
    end = float("inf") if chosen.days is None else begin + chosen.days * DAY_S
    return [entry for entry in entries if begin <= entry.submitted_at < end][: chosen.most_jobs]


def nodes_for(entries: Sequence[Entry], gpus_per_node: int) -> int:
    """Enough nodes for the largest job, and enough that they would be busy for 85 % of the time."""
    entries = [entry for entry in entries if entry.num_gpus <= MOST_NODES * gpus_per_node]
    if not entries:
        return 1
    span_s = max(DAY_S, entries[-1].submitted_at - entries[0].submitted_at)
    work = sum(min(entry.run_s, 7 * DAY_S) * entry.num_gpus for entry in entries)
    wanted = round(work / span_s / 0.85 / gpus_per_node)
    return min(MOST_NODES, max(1, wanted, -(-max(entry.num_gpus for entry in entries) // gpus_per_node)))


def _jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"


def _busy_from(entries: Sequence[Entry]) -> int:
    """The first day with at least a tenth of the jobs of the busiest one."""
    begin = entries[0].submitted_at
    counts: dict[int, int] = {}
    for entry in entries:
        day = int((entry.submitted_at - begin) / DAY_S)
        counts[day] = counts.get(day, 0) + 1
    most = max(counts.values())
    return next(day for day in sorted(counts) if counts[day] >= _QUIET * most)


def _job(number: int, entry: Entry, begin: float, gpus_per_node: int, num_gpus: int, dice: random.Random) -> Job:
    """It gets as many nodes as it had, if the simulated cluster has them; its GPUs fit in any case."""
    nodes = entry.num_nodes or -(-entry.num_gpus // gpus_per_node)
    each = -(-entry.num_gpus // nodes)
    if each > gpus_per_node or nodes * gpus_per_node > num_gpus:
        nodes = -(-entry.num_gpus // gpus_per_node)
        each = -(-entry.num_gpus // nodes)
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
