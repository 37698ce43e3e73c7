"""The differences of two runs, as rows and as lines."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.cli.console import Paint
from muster.cli.text import counted, number
from muster.cli.views.columns import Column, fit
from muster.cli.views.listing import command_text, input_text, run_time
from muster.client.provenance import Provenance
from muster.wire.codec import Json
from muster.wire.runs import RunView

_MOST_BYTES = 1 << 20
_SETTINGS = ("resources", "distribution", "environment", "environment_variables", "limits", "retry", "queue_settings")


@dataclass(frozen=True)
class Differing:
    """One difference of two runs."""

    what: str
    left: str
    right: str


def differences(
    one: RunView, other: RunView, origin: Provenance | None, other_origin: Provenance | None, code: str, now: float
) -> list[Differing]:
    """All differences of two runs, causes first."""
    rows = [
        ("command", command_text(one.spec.get("command")), command_text(other.spec.get("command"))),
        *_mapping("input", *(_inputs(view) for view in (one, other))),
        *_mapping("", *(_settings(view.spec) for view in (one, other))),
        ("compute", one.compute, other.compute),
        *_origin(origin, other_origin),
        ("code", *_changed_files(code)),
        ("machines", _machines(one), _machines(other)),
        *_mapping("tag", one.tags, other.tags),
        ("status", one.status, other.status),
        ("duration", run_time(one, now), run_time(other, now)),
        *_mapping("metric", *(_metrics(view) for view in (one, other))),
    ]
    return [Differing(what, left or "-", right or "-") for what, left, right in rows if left != right]


def lines(one: RunView, other: RunView, found: Sequence[Differing], paint: Paint, room: int | None) -> list[str]:
    """A line for each difference."""
    titles = [Column("", 8), Column(one.name or one.id, 12), Column(other.name or other.id, 12)]
    head, *rows = fit(titles, [(row.what, row.left, row.right) for row in found], room)
    return [paint(head, "dim"), *rows]


def code_difference(left: Path, right: Path) -> str:
    """A unified diff of two code folders."""
    names = sorted(
        {str(path.relative_to(root)) for root in (left, right) for path in root.rglob("*") if path.is_file()}
    )
    return "".join(piece for name in names for piece in _file_difference(left / name, right / name, name))


def _file_difference(left: Path, right: Path, name: str) -> Iterator[str]:
    before, after = (path.read_bytes() if path.is_file() else b"" for path in (left, right))
    if before == after:
        return
    if b"\0" in before + after or len(before) + len(after) > _MOST_BYTES:
        yield f"--- a/{name}\n+++ b/{name}\nbinary or large files differ\n"
        return
    old, new = (data.decode(errors="replace").splitlines(keepends=True) for data in (before, after))
    for line in difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"):
        yield line if line.endswith("\n") else line + "\n"


def _changed_files(code: str) -> tuple[str, str]:
    count = sum(line.startswith("+++ b/") for line in code.splitlines())
    return ("", f"{counted(count, 'file')} changed") if count else ("", "")


def _mapping(what: str, left: Mapping[str, str], right: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for name in dict.fromkeys([*left, *right]):
        yield f"{what} {name}".strip(), left.get(name, ""), right.get(name, "")


def _inputs(view: RunView) -> dict[str, str]:
    inputs = view.spec.get("inputs")
    return {name: input_text(value) for name, value in inputs.items()} if isinstance(inputs, Mapping) else {}


def _settings(spec: Mapping[str, Json]) -> dict[str, str]:
    """The other parts of a job, key by key."""
    found: dict[str, str] = {}
    for name in _SETTINGS:
        value = spec.get(name)
        if isinstance(value, Mapping):
            found |= {f"{name}.{key}": str(item) for key, item in value.items() if item not in (None, {}, [])}
        elif value is not None:
            found[name] = str(value)
    return found


def _origin(one: Provenance | None, other: Provenance | None) -> Iterator[tuple[str, str, str]]:
    if one is None or other is None:
        return
    yield "commit", _commit(one), _commit(other)
    yield "branch", (one.git.branch or "") if one.git else "", (other.git.branch or "") if other.git else ""
    yield "python", one.python, other.python
    packages = [dict(line.split("==", 1) for line in origin.packages if "==" in line) for origin in (one, other)]
    yield from _mapping("package", *packages)


def _commit(origin: Provenance) -> str:
    return origin.git.commit[:10] + (" and more" if origin.git.dirty else "") if origin.git else ""


def _machines(view: RunView) -> str:
    nodes = view.attempts[-1].nodes if view.attempts else ()
    described = {f"{node.cpus or '?'} CPUs, {counted(len(node.gpus), 'GPU')}" for node in nodes}
    return f"{counted(len(nodes), 'node')}: {'; '.join(sorted(described))}" if nodes else ""


def _metrics(view: RunView) -> dict[str, str]:
    return {name: number(value) for name, value in view.metrics.items() if not name.startswith(("node/", "muster/"))}
