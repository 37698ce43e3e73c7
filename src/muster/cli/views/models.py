"""Models as lines: lists, details and comparisons. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath

from muster.cli.text import counted, moment, number, size, wrapped
from muster.cli.views.columns import Column, fit
from muster.wire.codec import Json
from muster.wire.models import ModelDetails, ModelFormat, ModelLineage, ModelView

_NAME = 12
_MOST_FILES = 20
_MOST_METRICS = 20


@dataclass(frozen=True)
class DifferingModel:
    """One difference of two versions."""

    what: str
    left: str
    right: str


def listing(models: Sequence[ModelView], now: float, room: int | None) -> list[str]:
    """A line for each version."""
    columns = [
        Column("MODEL", 12), Column("STAGE", leaves=2), Column("ALIASES", 8, leaves=1), Column("SIZE"),
        Column("FORMAT", 8, leaves=3), Column("MADE"), Column("RUN", 8, leaves=4),
    ]  # fmt: skip
    rows = [
        [
            f"{model.name}:{model.version}",
            "-" if model.stage == "None" else model.stage,
            ", ".join(model.aliases) or "-",
            "-" if model.size is None else size(model.size),
            _kinds(model.formats) or model.type,
            moment(model.created_at, now),
            model.run_id or "-",
        ]
        for model in models
    ]
    return fit(columns, rows, room)


def description(details: ModelDetails, now: float, files: bool, room: int | None = None) -> Iterator[str]:
    """All details of one version."""
    model, lineage = details.model, details.lineage
    fields = {
        "model": f"{model.name}:{model.version}",
        "type": model.type,
        "stage": "" if model.stage == "None" else model.stage,
        "aliases": ", ".join(model.aliases),
        "description": model.description or "",
        "tags": _pairs(model.tags),
        "made": moment(model.created_at, now) + (f" by {model.created_by}" if model.created_by else ""),
        "holds": amount(model),
        "digest": model.digest or "",
        "lies at": model.address or (f"runs:/{model.run_id}/{model.path}" if model.run_id else model.path),
    }
    yield from _named(fields.items(), room)
    yield from _named((("format", _format(item)) for item in model.formats), room)
    origin = {
        "run": lineage.run_id or "",
        "experiment": lineage.experiment or "",
        "command": lineage.command or "",
        "code": lineage.code or "",
        "environment": lineage.environment or "",
        "inputs": _pairs({name: _input(item) for name, item in lineage.inputs.items()}),
        "params": _pairs(lineage.params),
        "metrics": _pairs(dict(islice(_metrics(lineage).items(), _MOST_METRICS))),
    }
    yield from _named(origin.items(), room)
    if files:
        columns = [Column("BYTES"), Column("SHA256", 12), Column("FILE", 20)]
        named = zip(details.files, _hashes(details), strict=True)
        rows = [(f"{item.size:,}", digest or "not known", name) for item, (name, digest) in named]
        yield from ("", *fit(columns, rows, room))
    elif len(details.files) > 1:
        shown = [item.path for item in details.files[:_MOST_FILES]]
        more = len(details.files) - len(shown)
        yield from _named([("files", f"{', '.join(shown)}{f' and {more:,} more (--files)' if more else ''}")], room)


def _named(items: Iterable[tuple[str, str]], room: int | None) -> Iterator[str]:
    """Labelled lines, several for a list of values."""
    for name, value in items:
        if value:
            first, *rest = wrapped(value, room, _NAME + 1)
            yield f"{name:<{_NAME}} {first}"
            yield from (f"{'':<{_NAME}} {line}" for line in rest)


def _hashes(details: ModelDetails) -> list[tuple[str, str]]:
    """Each file's name and hash; a model that is a single file has the name of that."""
    own = PurePosixPath(details.model.path).name or "."
    return [(item.path or own, item.sha256 or "") for item in details.files]


def _metrics(lineage: ModelLineage) -> dict[str, str]:
    """Metrics of the script; those of the machine say nothing about the model."""
    return {name: _value(item) for name, item in lineage.metrics.items() if not name.startswith("node/")}


def amount(model: ModelView) -> str:
    """The number and size of a version's files."""
    if model.num_files is None or model.size is None:
        return "not known before its run has kept its files"
    return f"{counted(model.num_files, 'file')}, {size(model.size)}"


def differences(one: ModelDetails, other: ModelDetails) -> list[DifferingModel]:
    """All differences of two versions, causes first."""
    left, right = one.lineage, other.lineage
    rows = [
        ("run", left.run_id or "", right.run_id or ""),
        ("command", left.command or "", right.command or ""),
        ("code", left.code or "", right.code or ""),
        ("environment", left.environment or "", right.environment or ""),
        *_both("input", *({name: _input(item) for name, item in version.inputs.items()} for version in (left, right))),
        *_both("param", left.params, right.params),
        ("type", one.model.type, other.model.type),
        ("format", _kinds(one.model.formats), _kinds(other.model.formats)),
        ("size", amount(one.model), amount(other.model)),
        ("digest", one.model.digest or "", other.model.digest or ""),
        *_both("file", *(dict(_hashes(version)) for version in (one, other))),
        ("stage", one.model.stage, other.model.stage),
        ("aliases", ", ".join(one.model.aliases), ", ".join(other.model.aliases)),
        *_both("tag", one.model.tags, other.model.tags),
        *_both("metric", _metrics(left), _metrics(right)),
    ]
    return [DifferingModel(what, a or "-", b or "-") for what, a, b in rows if a != b]


def comparison(one: ModelView, other: ModelView, found: Sequence[DifferingModel], room: int | None) -> list[str]:
    """A line for each difference."""
    titles = [Column("", 8), Column(f"{one.name}:{one.version}", 12), Column(f"{other.name}:{other.version}", 12)]
    return fit(titles, [(row.what, _short(row, row.left), _short(row, row.right)) for row in found], room)


def _short(row: DifferingModel, text: str) -> str:
    return text[:12] if row.what in ("digest", "code") or row.what.startswith("file ") else text


def _both(what: str, left: Mapping[str, str], right: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for name in dict.fromkeys([*left, *right]):
        yield f"{what} {name}", left.get(name, ""), right.get(name, "")


def _kinds(formats: Sequence[ModelFormat]) -> str:
    return ", ".join(dict.fromkeys(item.format for item in formats))


def _format(item: ModelFormat) -> str:
    details = "; ".join(f"{key} {value}" for key, value in item.details.items())
    return f"{item.format}{f' ({item.path})' if item.path not in ('', '.') else ''}{f': {details}' if details else ''}"


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _input(item: Json) -> str:
    if isinstance(item, Mapping):
        return str(item.get("path") or item.get("type") or "")
    return _value(item)


def _value(value: Json) -> str:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return number(value)
    return value if isinstance(value, str) else json.dumps(value)
