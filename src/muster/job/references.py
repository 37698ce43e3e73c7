"""Finds `${{inputs.x}}`, `${{outputs.x}}`, `${{secrets.x}}` and optional parts `$[[ … ]]` in a text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from muster.errors import JobError
from muster.job.refusal import nearest
from muster.job.rules import IDENTIFIER

_FOREIGN = {
    "search_space": "belongs to a sweep, and this is a command job",
    "parent": "belongs to a step of a pipeline, and this is a command job",
    "jobs": "belongs to a pipeline, and this is a command job",
}


@dataclass(frozen=True)
class Reference:
    """`${{inputs.NAME}}`, `${{outputs.NAME}}` or `${{secrets.NAME}}`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"${{{{{self.kind}.{self.name}}}}}"

    @property
    def variable(self) -> str:
        """The variable that holds a path on the node."""
        return f"MUSTER_{'INPUT' if self.kind == 'inputs' else 'OUTPUT'}_{self.name}"


@dataclass(frozen=True)
class OptionalPart:
    """`$[[ … ]]`: dropped when an optional input in it is not given."""

    parts: tuple[str | Reference, ...]


Part = str | Reference | OptionalPart


@dataclass(frozen=True)
class Declared:
    """The inputs and outputs that a job declares, grouped by what a reference to them becomes."""

    literals: frozenset[str]
    paths: frozenset[str]
    absent: frozenset[str]
    """Optional inputs that were not given."""
    outputs: frozenset[str]

    @property
    def inputs(self) -> frozenset[str]:
        return self.literals | self.paths | self.absent


class BadExpression(JobError):
    """An expression that cannot be resolved."""


def parse(text: str) -> tuple[Part, ...]:
    """Split a text into plain text, references and optional parts."""
    parts: list[Part] = []
    rest = text
    while "$[[" in rest:
        before, _, rest = rest.partition("$[[")
        inner, closed, rest = rest.partition("]]")
        if not closed:
            raise BadExpression("the optional part '$[[' is not closed", "Close it with ']]'.")
        if "$[[" in inner:
            raise BadExpression("an optional part inside another one", "Close the first with ']]' before the second.")
        parts += _split(before)
        parts.append(OptionalPart(tuple(_split(inner))))
    parts += _split(rest)
    return tuple(parts)


def check(text: str, declared: Declared, *, paths_allowed: bool = True) -> None:
    """Refuse references to anything that the job does not declare; raises BadExpression."""
    for part in parse(text):
        for reference in _references_of(part):
            _check(reference, declared, paths_allowed, in_optional=isinstance(part, OptionalPart))


def references(text: str) -> list[Reference]:
    """Every reference in a text."""
    return [reference for part in parse(text) for reference in _references_of(part)]


def kept_parts(parts: tuple[Part, ...], absent: frozenset[str]) -> list[str | Reference]:
    """The remaining parts, with every optional part included or dropped."""
    kept: list[str | Reference] = []
    for part in parts:
        if not isinstance(part, OptionalPart):
            kept.append(part)
        elif not any(item.kind == "inputs" and item.name in absent for item in _references_of(part)):
            kept += part.parts
    return kept


def _references_of(part: Part) -> list[Reference]:
    inner = part.parts if isinstance(part, OptionalPart) else (part,)
    return [item for item in inner if isinstance(item, Reference)]


def _split(text: str) -> Iterator[str | Reference]:
    while "${{" in text:
        before, _, text = text.partition("${{")
        body, closed, text = text.partition("}}")
        if not closed:
            raise BadExpression("the expression '${{' is not closed", "Close it with '}}', as in ${{inputs.epochs}}.")
        if before:
            yield before
        yield _reference(body)
    if text:
        yield text


def _reference(body: str) -> Reference:
    kind, _, name = body.strip().partition(".")
    # The first files of v2 wrote an input as its path: `inputs.x.path`.
    name = name if kind == "secrets" else name.removesuffix(".path")
    if kind in _FOREIGN:
        raise BadExpression(f"${{{{{body}}}}} {_FOREIGN[kind]}", "Use ${{inputs.NAME}} or ${{outputs.NAME}}.")
    if kind not in ("inputs", "outputs", "secrets") or not IDENTIFIER.fullmatch(name):
        shown = body if len(body) <= 60 else body[:59] + "…"
        raise BadExpression(
            f"${{{{{shown}}}}} is not an expression that Muster knows",
            "Write ${{inputs.NAME}}, ${{outputs.NAME}}, or in environment_variables ${{secrets.NAME}}.",
        )
    return Reference(kind, name)


def _check(reference: Reference, declared: Declared, paths_allowed: bool, in_optional: bool) -> None:
    if reference.kind == "secrets":
        if paths_allowed:
            raise BadExpression(
                f"{reference} stands in the command, where it would be kept and shown",
                f"Write environment_variables: {{{reference.name}: {reference}}}, and read that variable.",
            )
        return
    names = declared.inputs if reference.kind == "inputs" else declared.outputs
    if reference.name not in names:
        known = ", ".join(sorted(names)) or "none"
        raise BadExpression(
            f"{reference} refers to '{reference.name}', which is not declared under {reference.kind}; "
            f"{nearest(reference.name, names)}declared: {known}",
            f"Declare it under {reference.kind}, or correct the name.",
        )
    if reference.kind == "inputs" and reference.name in declared.absent and not in_optional:
        raise BadExpression(
            f"{reference} is optional and has no value",
            f"Give it a value, or write the part that needs it as $[[ … {reference} … ]].",
        )
    if not paths_allowed and (reference.kind == "outputs" or reference.name in declared.paths):
        raise BadExpression(
            f"{reference} is a path, which is known only on the node",
            f"Read it from {reference.variable}, which every process gets.",
        )
