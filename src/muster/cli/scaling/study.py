"""A scaling study: the order of runs, the measurements, the results. Pure except for its file."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from muster.errors import Conflict, JobError
from muster.host.files import write_json
from muster.job.parts import TensorFlow
from muster.job.spec import JobSpec
from muster.wire.codec import WireError, from_json, to_json

FILES = ("scaling.json", "scaling.part", "scaling.png", "scaling.svg")
"""The files of a study."""
_FORMAT = 1
_BELIEVABLE = 1.15


@dataclass(frozen=True)
class Size:
    """So many processes in all, over so many nodes; `per_node` is None where each node starts its own."""

    procs: int
    nodes: int
    per_node: int | None

    def __str__(self) -> str:
        return f"{self.nodes}x{self.per_node or 1}"


@dataclass(frozen=True)
class Sample:
    """One run of one size."""

    procs: int
    repeat: int
    run: str
    value: float


@dataclass(frozen=True)
class Machine:
    """The machine of a study."""

    host: str = ""
    cpus: int | None = None
    system: str = ""
    python: str = ""
    muster: str = ""


@dataclass(frozen=True)
class Row:
    """The result of one size: the median of its runs, compared with the smallest size."""

    size: Size
    values: tuple[float, ...]
    value: float
    speedup: float
    ideal: float
    efficiency: float


@dataclass(frozen=True)
class Study:
    """The study; written to its file after every run, so that an interrupted one can continue."""

    key: str
    job: str
    metric: str
    sizes: tuple[Size, ...]
    repeats: int
    machine: Machine = Machine()
    samples: tuple[Sample, ...] = ()
    notices: tuple[str, ...] = ()
    code: str = ""
    """The digest of the job's code; empty where the job has none."""

    def left(self) -> list[tuple[Size, int]]:
        """The remaining runs; sizes take turns, so that a slow hour affects all of them."""
        done = {(sample.procs, sample.repeat) for sample in self.samples}
        turns = [(size, repeat) for repeat in range(1, self.repeats + 1) for size in self.sizes]
        return [(size, repeat) for size, repeat in turns if (size.procs, repeat) not in done]

    def add(self, sample: Sample) -> Study:
        return replace(self, samples=(*self.samples, sample))

    def rows(self) -> list[Row]:
        """A row for every size that was measured."""
        found = []
        for size in self.sizes:
            values = tuple(sample.value for sample in self.samples if sample.procs == size.procs)
            if values:
                found.append((size, values, statistics.median(values)))
        if not found:
            return []
        base, _, base_value = found[0]
        rows = []
        for size, values, value in found:
            ideal = base_value * size.procs / base.procs
            rows.append(Row(size, values, value, value / base_value, ideal, value / ideal if ideal else 0.0))
        return rows


def parse_procs(text: str) -> tuple[int, ...]:
    """Parse `1,2,4`, which must be increasing."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise JobError(f"--procs {text}: give numbers of processes above zero with commas, such as 1,2,4,8.")
    counts = tuple(int(part) for part in parts)
    if any(later <= earlier for earlier, later in pairwise(counts)):
        raise JobError(f"--procs {text}: give each number once, from the smallest to the largest.")
    return counts


def sizes_of(spec: JobSpec, counts: Sequence[int], per_node: int | None) -> tuple[Size, ...]:
    """How each number of processes is distributed over nodes."""
    distribution = spec.distribution
    own = getattr(distribution, "process_count_per_instance", None)
    if isinstance(distribution, TensorFlow) or (distribution is not None and own is None):
        if per_node not in (None, 1):
            raise JobError(
                f"--per-node {per_node}: this job has one process on each node, so --procs counts nodes.",
                "Leave --per-node out.",
            )
        return tuple(Size(count, count, None) for count in counts)
    if per_node is None:
        per_node = own if own and spec.resources.instance_count > 1 else max(counts)
    sizes = []
    for count in counts:
        if count > per_node and count % per_node:
            raise JobError(
                f"{count} processes do not divide over nodes with {per_node} each.",
                f"Use multiples of {per_node}, or another --per-node.",
            )
        sizes.append(Size(count, max(1, count // per_node), min(count, per_node)))
    return tuple(sizes)


def key_of(spec: JobSpec) -> str:
    """The same job has the same key, whatever the sizes."""
    text = json.dumps(spec.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def resume(found: Study | None, wanted: Study) -> Study:
    """The study to continue: measurements of an earlier one of the same job and code are kept."""
    if found is None:
        return wanted
    if found.key != wanted.key or (wanted.metric and found.metric not in ("", wanted.metric)):
        raise Conflict(
            f"the folder has a study of another job or metric ({found.job}, {found.metric or 'any throughput'})",
            "Give another --out, or --fresh to write over it.",
        )
    if found.code != wanted.code:
        return wanted
    wanted_runs = {(size.procs, repeat) for size, repeat in wanted.left()}
    shapes = {size.procs: size for size in found.sizes}
    kept = tuple(
        sample
        for sample in found.samples
        if (sample.procs, sample.repeat) in wanted_runs and shapes[sample.procs] in wanted.sizes
    )
    return replace(wanted, metric=found.metric or wanted.metric, samples=kept)


def doubts(rows: Sequence[Row]) -> list[str]:
    """Results that are hard to believe."""
    return [
        f"an efficiency of {100 * row.efficiency:.0f} % with {row.size.procs} processes: the run with "
        f"{rows[0].size.procs} was slowed by something else, or had other work; try --repeat 3 --fresh"
        for row in rows
        if row.efficiency > _BELIEVABLE
    ]


def read(path: Path) -> Study | None:
    """The study in a file; None where there is none."""
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        data = {}
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise Conflict(f"{path} is not a scaling study of this version", "Give another --out, or --fresh.")
    try:
        return from_json(Study, {key: value for key, value in data.items() if key not in ("format", "rows")})
    except WireError as error:
        raise Conflict(f"{path} is not a scaling study: {error}", "Give another --out, or --fresh.") from error


def write(path: Path, study: Study) -> None:
    """Replace the file atomically."""
    rows = [{**to_json(row), "size": str(row.size), "procs": row.size.procs} for row in study.rows()]
    write_json(path, {"format": _FORMAT, **to_json(study), "rows": rows}, indent=2)
