"""`--array`: one job for each of many values. Pure."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from muster.errors import JobError
from muster.job.spec import JobSpec

VARIABLE = "ARRAY_VALUE"
"""The variable in which each run finds its value."""
TAG = "array"
MOST = 10_000
_RANGE = re.compile(r"(\d+)-(\d+)(?::(\d+))?")
_HOW = "Give 0-199, 0-199:5 or 3,5,8; for an input of the job file lr=0.1,0.01."


@dataclass(frozen=True)
class Array:
    """The values of the runs, and the input that takes them."""

    values: tuple[str, ...]
    input: str | None = None


def parse_array(text: str) -> Array:
    """`0-199`, `0-199:5`, `3,5,8`; `seed=0-9` and `lr=0.1,0.01` for an input."""
    name, equals, listed = text.rpartition("=")
    if equals and not name:
        raise JobError(f"--array {text}: the name of the input is missing before the equals sign.", _HOW)
    if "%" in listed:
        raise JobError(
            f"--array {text}: how many run at a time is for the cluster to say, not for the array.",
            "On Slurm: `muster cluster set NAME array_limit=8`; elsewhere the cluster's size and its limits for "
            "one experiment.",
        )
    values = [value for part in listed.split(",") for value in _values(part.strip(), text)]
    if twice := next((value for value in values if values.count(value) > 1), None) if len(values) < MOST else None:
        raise JobError(f"--array {text}: {twice} is there twice.", "Give each value once.")
    if len(values) > MOST:
        raise JobError(f"--array {text}: these are {len(values)} runs; at most {MOST} are taken.", "Give fewer values.")
    return Array(tuple(values), name or None)


def _values(part: str, text: str) -> Sequence[str]:
    if not part:
        raise JobError(f"--array {text}: a value is missing.", _HOW)
    match = _RANGE.fullmatch(part)
    if match is None:
        return [part]
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if last < first or not step:
        raise JobError(f"--array {text}: {part} counts to nothing.", "Give the smaller number first, as in 0-199:5.")
    return [str(number) for number in range(first, min(last, first + (MOST + 1) * step) + 1, step)]


def array_name(spec: JobSpec) -> str:
    """The tag of the runs, unique among arrays."""
    return f"{_title(spec)}-{secrets.token_hex(3)}"


def member(spec: JobSpec, value: str, array: str) -> JobSpec:
    """The job of one run: with its value, a name that shows it, and the array's tag."""
    ending = re.sub(r"[^\w.-]+", "-", value)
    named = {"name": f"{spec.name}-{ending}"} if spec.name else {}
    return spec.model_copy(
        update={
            **named,
            "display_name": f"{_title(spec)}-{ending}",
            "environment_variables": {**spec.environment_variables, VARIABLE: value},
            "tags": {**spec.tags, TAG: array},
        }
    )


def _title(spec: JobSpec) -> str:
    return spec.display_name or spec.name or spec.experiment_name
