"""Puts inputs and outputs into a job's command and variables.

A text command runs under bash, so each value is quoted for its position; paths, which are only known on the
node, become the variables MUSTER_INPUT_x and MUSTER_OUTPUT_x. In a comment a reference is left out; in arithmetic only
numbers are allowed; where bash would run the value as code (backticks, `${…}`) the job is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from muster.errors import JobError
from muster.job.parts import Input, Output, Scalar
from muster.job.quoting import Context, Unquotable, contexts, quoted, variable
from muster.job.references import BadExpression, Declared, Reference, check, kept_parts, parse, references
from muster.job.refusal import Path, Problem

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_LAST_NAME = re.compile(r"(?:^|(?<=[^\\$]))((?:\\\\|\$\$)*)\$([A-Za-z_][A-Za-z0-9_]*)$")
_ODD_DOLLARS = re.compile(r"(?:^|[^$])(?:\$\$)*\$$")


class Job(Protocol):
    """The parts of a job that expressions use; JobSpec is one."""

    @property
    def command(self) -> str | tuple[str, ...]: ...
    @property
    def inputs(self) -> Mapping[str, Scalar | Input]: ...
    @property
    def outputs(self) -> Mapping[str, Output]: ...
    @property
    def environment_variables(self) -> Mapping[str, str]: ...


def resolve_command(job: Job) -> str | tuple[str, ...]:
    """The command with its references resolved; raises JobError if a value cannot be inserted."""
    absent = declared(job).absent
    try:
        if isinstance(job.command, str):
            return _resolve_text(job, kept_parts(parse(job.command), absent))
        elements = [_resolve_element(job, kept_parts(parse(element), absent), element) for element in job.command]
    except BadExpression as error:
        raise JobError(f"command: {error.message}", error.hint) from error
    return tuple(element for element in elements if element is not None)


def resolve_environment(job: Job, secrets: Mapping[str, str] | None = None) -> dict[str, str]:
    """The job's own variables with references resolved; without `secrets`, those that contain one are left out."""
    absent = declared(job).absent
    resolved = {}
    for name, text in job.environment_variables.items():
        parts = kept_parts(parse(text), absent)
        if secrets is None and any(isinstance(part, Reference) and part.kind == "secrets" for part in parts):
            continue
        resolved[name] = "".join(part if isinstance(part, str) else _value(job, part, secrets or {}) for part in parts)
    return resolved


def secret_names(job: Job) -> set[str]:
    """The secrets that a job's variables refer to."""
    texts = [text for text in job.environment_variables.values() if "secrets." in text]
    return {item.name for text in texts for item in references(text) if item.kind == "secrets"}


def expression_problems(job: Job) -> list[Problem]:
    """Every expression that cannot be resolved, with its key."""
    known = declared(job)
    problems = []
    commands = [job.command] if isinstance(job.command, str) else job.command
    for index, text in enumerate(commands):
        path: Path = ("command",) if isinstance(job.command, str) else ("command", index)
        try:
            check(text, known)
            parts = kept_parts(parse(text), known.absent)
            resolved = _resolve_text(job, parts) if isinstance(job.command, str) else _resolve_element(job, parts, text)
            if index == 0 and not (resolved or "").strip():
                raise BadExpression("nothing is left of the command", "Write the program itself outside of $[[ … ]].")
        except BadExpression as error:
            problems.append(Problem(path, error.message, error.hint))
    for name, text in job.environment_variables.items():
        try:
            check(text, known, paths_allowed=False)
        except BadExpression as error:
            problems.append(Problem(("environment_variables", name), error.message, error.hint))
    return problems


def declared(job: Job) -> Declared:
    """The inputs and outputs of a job, grouped by what a reference to them becomes."""
    literals = {name for name, value in job.inputs.items() if isinstance(value, bool | int | float | str)}
    absent = {name for name in job.inputs.keys() - literals if not getattr(job.inputs[name], "path", None)}
    return Declared(
        literals=frozenset(literals),
        paths=frozenset(job.inputs.keys() - literals - absent),
        absent=frozenset(absent),
        outputs=frozenset(job.outputs),
    )


def _resolve_text(job: Job, parts: Sequence[str | Reference]) -> str:
    items = [item for part in parts for item in (part if isinstance(part, str) else [part])]
    found = iter(contexts(items))
    pieces: list[str] = []
    for index, part in enumerate(parts):
        if isinstance(part, str):
            pieces.append(part)
            continue
        context = next(found)
        if isinstance(context, Unquotable):
            raise BadExpression(f"{part} {context.reason}, where its value cannot be quoted", context.hint)
        after = parts[index + 1] if index + 1 < len(parts) else ""
        # 3>file would redirect descriptor 3.
        force = isinstance(after, str) and after.startswith((">", "<"))
        if context in (Context.BARE, Context.DOUBLE, Context.HEREDOC) and index and isinstance(parts[index - 1], str):
            pieces[-1] = _brace_last_name(pieces[-1])
        pieces.append(_in_context(job, part, context, force))
    return "".join(pieces)


def _in_context(job: Job, reference: Reference, context: Context, force: bool) -> str:
    value = _literal(job, reference)
    if context is Context.COMMENT:
        return f"{reference.kind}.{reference.name}"
    if context is Context.ARITHMETIC and (value is None or not _NUMBER.fullmatch(value)):
        raise BadExpression(f"{reference} stands in arithmetic and is not a number", "Use a number there.")
    if value is None:
        if context is Context.RAW_HEREDOC:
            raise BadExpression(
                f"{reference} is a path and stands in a here-document with a quoted delimiter",
                "Write the delimiter without quotes, so that bash puts the path in.",
            )
        return variable(reference.variable, context)
    if context in (Context.HEREDOC, Context.RAW_HEREDOC) and "\n" in value:
        raise BadExpression(
            f"{reference} holds several lines and stands in a here-document", "Pass it as an argument instead."
        )
    return quoted(value, context, force=force)


def _resolve_element(job: Job, parts: Sequence[str | Reference], element: str) -> str | None:
    """One element of a list; `$NAME` in it is expanded later, so a dollar sign in a value becomes `$$`."""
    if not parts and element:
        return None
    pieces: list[str] = []
    for index, part in enumerate(parts):
        if isinstance(part, str):
            pieces.append(part)
            continue
        if index and isinstance(parts[index - 1], str):
            if _ODD_DOLLARS.search(pieces[-1]):
                raise BadExpression(f"{part} stands right after a dollar sign", "Write $$ for a dollar sign.")
            pieces[-1] = _brace_last_name(pieces[-1])
        value = _literal(job, part)
        pieces.append(f"${{{part.variable}}}" if value is None else value.replace("$", "$$"))
    return "".join(pieces)


def _literal(job: Job, reference: Reference) -> str | None:
    """The text of a plain value, true and false as in Python; None if the reference is a path."""
    value = None if reference.kind == "outputs" else job.inputs[reference.name]
    return str(value) if isinstance(value, bool | int | float | str) else None


def _value(job: Job, reference: Reference, secrets: Mapping[str, str]) -> str:
    if reference.kind == "secrets":
        return secrets.get(reference.name, "")
    return _literal(job, reference) or ""


def _brace_last_name(text: str) -> str:
    """`$NAME` at the end becomes `${NAME}`, so that the next characters do not become part of the name."""
    return _LAST_NAME.sub(r"\1${\2}", text)
