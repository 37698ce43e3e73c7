"""Turns a failed validation into problems that a person can act on, and these into a JobError."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from muster.errors import JobError
from muster.job.parts import EnvironmentSpec
from muster.job.refusal import REFUSAL, Path, Problem, nearest, show
from muster.job.sections import (
    DISTRIBUTIONS,
    KINDS_THAT_CANNOT_RUN,
    REFUSED_DISTRIBUTIONS,
    keys_allowed_at,
    refused_key,
)
from muster.job.spec import JobSpec
from muster.wire.codec import Json

_NEEDED = {
    "string_type": "a text is needed",
    "int_type": "a whole number is needed",
    "float_type": "a number is needed",
    "bool_type": "true or false is needed",
    "dict_type": "a mapping (KEY: VALUE) is needed",
    "model_type": "a mapping (KEY: VALUE) is needed",
    "model_attributes_type": "a mapping (KEY: VALUE) is needed",
    "tuple_type": "a list is needed",
}
_BOUNDS = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}
_MAX_PROBLEMS = 50
_REFERENCE = "Every key is described in docs/job-file.md."


def make_spec(data: Mapping[str, Json], source: str = "job", line_of: Callable[[Path], int] | None = None) -> JobSpec:
    """A validated job from plain data; raises JobError with every problem, in the order of lines if known."""

    def where(problem: Problem) -> str:
        return f"{source}: " if line_of is None else f"{source}:{line_of(problem.path)}: "

    kind = data.get("type")
    if isinstance(kind, str) and kind in KINDS_THAT_CANNOT_RUN:
        message = f"{show(kind)} jobs cannot run yet; allowed: 'command'"
        raise job_error([Problem(("type",), message, KINDS_THAT_CANNOT_RUN[kind])], where)
    try:
        return JobSpec.model_validate(dict(data))
    except ValidationError as error:
        problems = _problems_of(error)
        if line_of is not None:
            problems.sort(key=lambda problem: (not problem.path, line_of(problem.path)))
        raise job_error(problems, where) from error


def make_environment(name: str, data: Mapping[str, Json]) -> EnvironmentSpec:
    """A validated environment from plain data; raises JobError with every problem, as for a job file."""
    try:
        return EnvironmentSpec.model_validate({"name": name, **data})
    except ValidationError as error:
        raise job_error(_problems_of(error, ("environment",))) from error


def job_error(problems: Iterable[Problem], where: Callable[[Problem], str] = lambda problem: "") -> JobError:
    """One error for all problems, one per line; `where` adds the file and line of each."""
    found = list(dict.fromkeys(problems))
    lines = [f"{where(p)}{p.key}: {p.message}" if p.key else f"{where(p)}{p.message}" for p in found]
    hints = dict.fromkeys([*(p.hint for p in found if p.hint), *(_REFERENCE for p in found if not p.hint)])
    return JobError("\n".join(lines), "\n".join(hints))


def _problems_of(error: ValidationError, below: Path = ()) -> list[Problem]:
    found = error.errors(include_url=False)
    for details in found:
        details["loc"] = (*below, *details["loc"])
    problems = [problem for details in found[:_MAX_PROBLEMS] for problem in _explain(details)]
    if len(found) > _MAX_PROBLEMS:
        problems.append(Problem((), f"… and {len(found) - _MAX_PROBLEMS} more problems"))
    return problems


def _explain(details: ErrorDetails) -> list[Problem]:
    path = _path(details["loc"])
    given = details.get("ctx", {}).get("problems")
    if details["type"] == REFUSAL and given is not None:
        return [Problem(path + p.path, p.message, p.hint) for p in given]
    return [_translate(path, details)]


def _translate(path: Path, details: ErrorDetails) -> Problem:
    kind, given, context = details["type"], details["input"], details.get("ctx", {})
    shown = "the value" if path and path[0] == "environment_variables" else show(given)
    if kind == "extra_forbidden":
        return _unknown_key(path, details["loc"])
    if kind == "missing":
        return Problem(path, "is missing", "Add what is missing.")
    if kind == "union_tag_not_found":
        return Problem((*path, "type"), f"is missing; allowed: {', '.join(DISTRIBUTIONS)}", "Add what is missing.")
    if kind == "union_tag_invalid":
        at, kind_given = (*path, "type"), str(context["tag"])
        return _refused_kind(at, kind_given, REFUSED_DISTRIBUTIONS) or _not_allowed(at, kind_given, DISTRIBUTIONS)
    if kind == "literal_error":
        allowed = context["expected"].replace(" or ", ", ").split(", ")
        return _not_allowed(path, given, [name.strip("' ") for name in allowed])
    if kind in _NEEDED:
        return Problem(path, f"{_as_given(shown, given)}; {_NEEDED[kind]}", _next_step(kind, given))
    if kind in _BOUNDS:
        return Problem(path, f"{shown} is out of range; allowed: {_BOUNDS[kind].format(**context)}")
    if kind == REFUSAL:
        return Problem(path, f"{_as_given(shown, given)}; {details['msg']}")
    return Problem(path, f"{shown}: {details['msg']}")


def _unknown_key(path: Path, location: Path) -> Problem:
    key = str(location[-1])
    if path[-1:] != location[-1:]:
        # A user's own key may look like one of the marks.
        path = (*path, key)
    if said := refused_key(path):
        return Problem(path, *said)
    variant = str(location[1]) if location[0] == "distribution" else ""
    allowed = keys_allowed_at(path[:-1], variant)
    return Problem(
        path,
        f"unknown key; {nearest(key, allowed)}allowed here: {', '.join(allowed)}",
        "Correct or remove the unknown key.",
    )


def _refused_kind(path: Path, given: Any, refused: Mapping[str, str]) -> Problem | None:
    """A kind that Azure ML supports and Muster does not."""
    return Problem(path, f"{show(given)} is not there in Muster", refused[given]) if given in refused else None


def _not_allowed(path: Path, given: Any, allowed: Iterable[str]) -> Problem:
    names = list(allowed)
    guess = nearest(given, names) if isinstance(given, str) else ""
    return Problem(path, f"{show(given)} is not allowed; {guess}allowed: {', '.join(names)}")


def _path(location: Iterable[str | int]) -> Path:
    """The location without the marks that validation adds for alternatives and keys."""
    parts = [part for part in location if not (isinstance(part, str) and (part.startswith("<") or part == "[key]"))]
    if len(parts) > 1 and parts[0] == "distribution" and parts[1] in DISTRIBUTIONS:
        del parts[1]
    return tuple(parts)


def _as_given(shown: str, value: Any) -> str:
    if value is None or isinstance(value, dict | list | tuple):
        return f"{show(value)} is given"
    if isinstance(value, bool):
        return f"{shown} is a yes or no"
    names = {str: "a text", int: "a whole number", float: "a fractional number"}
    return f"{shown} is {names.get(type(value), f'of type {type(value).__name__}')}"


def _next_step(kind: str, given: Any) -> str:
    if kind == "string_type" and isinstance(given, bool | int | float):
        return "Put it in quotes."
    if isinstance(given, str) and kind in ("int_type", "float_type", "bool_type"):
        return "Write it without quotes, as YAML writes numbers, true and false."
    return ""
