"""Runs as lines: the summary at a run's end, its verdict, everything about one run, the list of runs. Pure."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from shlex import quote

from muster.cli.console import Paint
from muster.cli.text import ago, counted, date, duration, moment, number, shorten, size, table, wrapped
from muster.cli.views.columns import Column, fit
from muster.cli.views.listing import between, command_text, first_line, input_text, progress_text, run_time, span
from muster.cli.views.metrics import figure, is_number, loss, loss_metric, throughput, throughput_metric
from muster.cli.views.movement import silence
from muster.cli.views.queue_job import queue_job
from muster.cli.views.queue_job import rows as queue_rows
from muster.client.provenance import DIFFERENCE, Provenance
from muster.control.datawait import waited
from muster.wire import states, verdicts
from muster.wire.environments import EnvironmentBrief
from muster.wire.runs import AttemptView, RankView, RunView
from muster.wire.tracking import RunMetric
from muster.wire.verdicts import RankExit, Verdict, VerdictEvidence

MAX_FILES = 12
_OTHERS = 4
"""How many other metrics a summary shows."""


_SERVICES = ("muster.scoring.serve", "muster.scoring.door")


def _is_service(view: RunView) -> bool:
    """Whether a run serves until somebody ends it, so that its end cannot be estimated."""
    command = view.spec.get("command")
    return isinstance(command, list) and command[1:3] in [["-m", name] for name in _SERVICES]


def summary(view: RunView, paint: Paint, now: float, room: int | None = None) -> list[str]:
    """The summary of an ended run."""
    lines = [headline(view, paint, now), *verdict(view, paint, room)]
    name = ref(view)
    rows = [(label, value) for label, value in _figures(view) if value]
    kept = [entry for entry in view.files if entry.path.startswith("outputs/")]
    if kept:
        total = size(sum(entry.size for entry in kept))
        rows.append(("outputs", f"{counted(len(kept), 'file')}, {total}: muster download {name} outputs"))
    rows.append(("logs", f"muster logs {name}"))
    more = ("metrics", f"{_others(view)}muster metrics {name}")
    rows.append(more if _logged(view.metrics) else ("more", f"muster show {name}"))
    return lines + _labelled(rows, paint, room)


def headline(view: RunView, paint: Paint, now: float) -> str:
    took, status = run_time(view, now), view.status
    verb = {states.COMPLETED: "in", states.FAILED: "after", states.CANCELED: "after"}.get(status, "for")
    parts = [paint(ref(view), "bold"), paint.status(status) + (f" {verb} {took}" if took else "")]
    parts.append(_gang(view))
    return "  ".join(part for part in parts if part)


def verdict(view: RunView, paint: Paint, room: int | None = None) -> list[str]:
    """Why a run failed; empty for others."""
    return explanation(view.verdict, paint, room) if view.verdict and view.status == states.FAILED else []


def explanation(given: Verdict, paint: Paint, room: int | None = None) -> list[str]:
    """What happened, to which rank on which node, its last lines, other candidates, the evidence, advice."""
    where = _where(given)
    title = f"{given.code}: {where}" if where and where not in given.message else given.code
    if given.confidence != "certain":
        title += f" ({given.confidence})"
    lines = ["", paint(title, "red", "bold")]
    lines += [f"  {part}" for line in given.message.splitlines() for part in wrapped(line, room, 2)]
    if given.lines:
        lines += ["", paint("  last lines:", "dim"), *(f"    {line}" for line in given.lines)]
    parts = [
        ("or:", "dim", f"{given.second.code}: {first_line(given.second.message)}" if given.second else ""),
        ("before:", "dim", given.similar.text if given.similar else ""),
        ("evidence:", "dim", "; ".join(_evidence(given.evidence))),
        ("then:", "bold", given.action),
        ("next:", "bold", given.next),
    ]
    for word, style, text in parts:
        if text:
            lines += ["", *_hanging(word, text, paint, room, style)]
    return [*lines, ""]


def everything(
    view: RunView,
    paint: Paint,
    now: float,
    room: int | None = None,
    origin: Provenance | None = None,
    logged: Mapping[str, RunMetric] | None = None,
) -> list[str]:
    """All details of one run, wrapped to a width; `logged`: its metrics in summary."""
    silent = silence(view.moved_at, now)
    lines = [headline(view, paint, now)]
    rows = [
        ("id", view.id),
        ("name", view.name if view.name != view.id else None),
        ("why" if view.status not in states.TERMINAL else "reason", view.reason),
        ("experiment", view.experiment),
        ("description", view.description),
        ("compute", view.compute),
        ("job id", view.attempts[-1].job_id if view.attempts else None),
        ("why", view.verdict.message if view.verdict and view.status == states.CANCELED else None),
        *queue_rows(queue_job(view)),
        ("command", command_text(view.spec.get("command"))),
        *(("input" if not number else "", text) for number, text in enumerate(_inputs(view))),
        *_origin(view, origin),
        ("environment", _environment(view.environment)),
        ("submitted", f"{date(view.created_at, now)} by {view.submitted_by or 'unknown'}"),
        ("starts", between(view.starts_between, now) or (moment(view.starts_at, now) if view.starts_at else None)),
        ("started", _started(view, now)),
        ("ends", None if silent or _is_service(view) else between(view.ends_between, now)),
        ("ended", date(view.ended_at, now) if view.ended_at else None),
        ("tags", ", ".join(f"{key}={value}" for key, value in view.tags.items())),
        ("params", shorten(", ".join(f"{key}={value}" for key, value in view.params.items()), 400)),
        ("progress", progress_text(view.progress)),
        ("data wait", _data_wait(view)),
        ("silent", silent),
    ]
    lines += _labelled([(label, str(value)) for label, value in rows if value], paint, room)
    lines += [line for text in view.notices for line in _hanging("notice:", text, paint, room)]
    lines += verdict(view, paint, room)
    for attempt in view.attempts:
        lines += _attempt(attempt, paint, now, room, only=len(view.attempts) == 1)
    lines += _checkpoints(view, paint, now)
    lines += _metrics(view, paint, logged or {}, room)
    return lines + _files(view, paint)


def ref(view: RunView) -> str:
    """The name by which a person refers to the run."""
    return view.name or view.id


def _origin(view: RunView, origin: Provenance | None) -> list[tuple[str, str | None]]:
    """The commit of the code, and the Python that submitted it."""
    rows: list[tuple[str, str | None]] = []
    if origin is not None and origin.git is not None:
        git = origin.git
        branch = f" ({git.branch})" if git.branch else ""
        more = f", with changes that are not committed: muster download {ref(view)} {DIFFERENCE}" if git.dirty else ""
        rows.append(("commit", f"{git.commit[:10]}{branch}{more}"))
    if view.snapshot:
        rows.append(("code", f"{view.snapshot[:10]}: muster download {ref(view)} code"))
    if origin is not None:
        rows.append(("python", f"{origin.python}, {counted(len(origin.packages), 'package')}"))
        rows.append(("typed", " ".join(map(quote, origin.command_line))))
    return rows


def _inputs(view: RunView) -> list[str]:
    inputs = view.spec.get("inputs")
    return [f"{name}: {input_text(value)}" for name, value in inputs.items()] if isinstance(inputs, Mapping) else []


def _started(view: RunView, now: float) -> str | None:
    """When it started, and how accurate the first estimate was."""
    if view.started_at is None:
        return None
    estimate = view.told_at_first
    if estimate is None:
        return date(view.started_at, now)
    after = duration(max(0.0, view.started_at - view.created_at))
    expected = span(estimate.low_at - view.created_at, estimate.high_at - view.created_at)
    verdict = "held" if estimate.held else "did not hold"
    return f"{date(view.started_at, now)}, after {after} (the estimate, {expected}, {verdict})"


def _gang(view: RunView) -> str:
    ranks, nodes = view.num_ranks, view.num_nodes
    if not ranks:
        return ""
    return f"{counted(ranks, 'rank')} on {counted(nodes, 'node')}"


def _figures(view: RunView) -> list[tuple[str, str | None]]:
    value = loss(view.metrics)
    return [
        ("why", view.verdict.message if view.verdict and view.status == states.CANCELED else None),
        ("not scored", _not_scored(view)),
        ("throughput", throughput(view.metrics)),
        ("data wait", _data_wait(view)),
        ("loss", None if value is None else number(value) + ("" if isfinite(value) else ": the training diverged")),
    ]


def _others(view: RunView) -> str:
    """Such as `accuracy 0.93, f1 0.9, 3 more: `: metrics besides the loss and the throughput."""
    shown = (loss_metric(view.metrics), throughput_metric(view.metrics))
    found = [
        f"{name} {figure(name, value)}"
        for name, value in view.metrics.items()
        if name not in shown and _logged([name]) and is_number(value)
    ]
    more = [f"{len(found) - _OTHERS} more"] if len(found) > _OTHERS else []
    return f"{', '.join([*found[:_OTHERS], *more])}: " if found else ""


def _not_scored(view: RunView) -> str | None:
    """Items that `muster score` gave up on, although the run completed."""
    failed = view.metrics.get("failed_items")
    if not isinstance(failed, int | float) or failed <= 0:
        return None
    return f"{counted(int(failed), 'item')} failed; the log has why"


def _data_wait(view: RunView) -> str | None:
    """The share of time that it waited for data, where that is worth a line."""
    found = waited(view.metrics)
    return f"{found[0]:.0%} of the time of its loop ({duration(found[1])})" if found and found[0] >= 0.01 else None


def _logged(metrics: Iterable[str]) -> bool:
    """Whether the script logged something; metrics of nodes and loaders do not count."""
    return any(not name.startswith(("node/", "muster/")) for name in metrics)


def _environment(given: EnvironmentBrief | None) -> str | None:
    if given is None:
        return None
    if given.key is None:
        return f"{given.name}, not built yet"
    packages = counted(given.packages, "package")
    if given.image:
        on_top = f" and {packages}" if given.packages else ""
        return f"image {given.image}{on_top} ({given.key}, Python {given.python})"
    return f"{given.name} ({given.key}, Python {given.python}, {packages})"


def _attempt(attempt: AttemptView, paint: Paint, now: float, room: int | None, only: bool) -> list[str]:
    lines = [""]
    if not only:
        lines += _heading(attempt, paint, now, room)
    has_roles = any(rank.role != "worker" for rank in attempt.ranks)
    rows = [
        (
            str(rank.rank),
            rank.node or "-",
            *([rank.role] if has_roles else []),
            rank.state,
            _exit(rank),
            duration((rank.ended_at or now) - rank.started_at) if rank.started_at else "-",
            rank.log,
        )
        for rank in attempt.ranks
    ]
    if rows:
        titles = ("RANK", "NODE", *(("ROLE",) if has_roles else ()), "STATE", "EXIT", "DURATION", "LOG")
        header = [paint(title, "dim") for title in titles]
        lines += [f"  {line}" for line in table(header, rows)]
    return lines if len(lines) > 1 else []


def _heading(attempt: AttemptView, paint: Paint, now: float, room: int | None) -> list[str]:
    """One attempt among several: when, how it ended, and what followed."""
    title = paint(f"attempt {attempt.number}", "bold") + f"  {paint.status(attempt.status)}"
    if attempt.started_at:
        took = duration((attempt.ended_at or now) - attempt.started_at)
        title += f"  {moment(attempt.started_at, now)}, {took}"
    lines = [title]
    if attempt.job_id:
        lines.append(f"  job {attempt.job_id}")
    if attempt.resumed_from is not None:
        lines.append("  resumed from a checkpoint")
    if attempt.verdict and attempt.verdict.code != verdicts.COMPLETED:
        lines += _hanging(f"{attempt.verdict.code}:", first_line(attempt.verdict.message), paint, room, "red")
    if attempt.verdict and attempt.verdict.action:
        lines += _hanging("then:", attempt.verdict.action, paint, room, "dim")
    return lines


def _checkpoints(view: RunView, paint: Paint, now: float) -> list[str]:
    kept = view.checkpoints
    if not kept:
        return []
    rows = [(item.name, f"{size(item.size)}, attempt {item.attempt}, {ago(item.at, now)}") for item in kept]
    fetch = paint(f"  muster download {ref(view)} checkpoints/{kept[0].name}", "dim")
    return ["", paint("checkpoints", "bold"), *_labelled(rows, paint), fetch]


def _exit(rank: RankView) -> str:
    if rank.signal is not None:
        return _signal(rank.signal)
    return "-" if rank.exit_code is None else str(rank.exit_code)


def _signal(given: int) -> str:
    try:
        return signal.Signals(given).name
    except ValueError:
        return f"signal {given}"


def _metrics(view: RunView, paint: Paint, logged: Mapping[str, RunMetric], room: int | None) -> list[str]:
    """Each metric with its last value; those logged more than once with the best, least and greatest too."""
    if not view.metrics:
        return []
    several = {
        name: item for name, item in logged.items() if item.count > 1 and item.best is not None and _logged([name])
    }
    rows = [(name, shorten(figure(name, value), 60)) for name, value in view.metrics.items() if name not in several]
    own = [row for row in rows if _logged([row[0]])]
    nodes = [row for row in rows if row not in own]
    lines = ["", paint("metrics", "bold"), *_labelled(own, paint)] if own or several else []
    titles = [Column("METRIC", 8), Column("LAST"), Column("BEST")]
    titles += [Column("LEAST", leaves=2), Column("GREATEST", leaves=2), Column("POINTS", leaves=1)]
    cells = [
        (name, number(item.last), number(item.best), number(item.least), number(item.greatest), f"{item.count:,}")
        for name, item in several.items()
    ]
    if cells:
        head, *found = fit(titles, cells, None if room is None else room - 2)
        lines[2:2] = [f"  {paint(head, 'dim')}", *(f"  {line}" for line in found)]
    return lines + (["", paint("nodes", "bold"), *_labelled(nodes, paint)] if nodes else [])


def _files(view: RunView, paint: Paint) -> list[str]:
    files = view.files
    if not files:
        return []
    lines = ["", paint("files", "bold")]
    lines += [f"  {size(entry.size):>9}  {entry.path}" for entry in files[:MAX_FILES]]
    if len(files) > MAX_FILES:
        lines.append(f"  … and {len(files) - MAX_FILES} more: muster show {ref(view)} --json")
    return [*lines, f"  muster download {ref(view)}"]


def _labelled(rows: Sequence[tuple[str, str]], paint: Paint, room: int | None = None) -> list[str]:
    widest = max((len(label) for label, _ in rows), default=0)
    lines = []
    for label, value in rows:
        first, *rest = _value_lines(value, room, widest + 4)
        lines.append(f"  {paint(label.ljust(widest), 'dim')}  {first}")
        lines += [f"{' ' * (widest + 4)}{part}" for part in rest]
    return lines


def _value_lines(value: str, room: int | None, indent: int) -> list[str]:
    """A value in lines that fit; a command at its end stays whole, to be copied."""
    said, colon, command = value.rpartition(": muster ")
    if room is None or not colon or len(value) <= room - indent:
        return wrapped(value, room, indent)
    return [*wrapped(f"{said}:", room, indent), f"muster {command}"]


def _hanging(word: str, text: str, paint: Paint, room: int | None, style: str = "yellow") -> list[str]:
    """A coloured label and a text, which wraps in its own column."""
    first, *rest = wrapped(f"{word} {text}", room, 4)
    return [f"  {paint(word, style)}{first[len(word) :]}", *(f"    {part}" for part in rest)]


def _where(given: Verdict | RankExit) -> str:
    rank = f"rank {given.rank}" if given.rank is not None else ""
    node = f"on {given.node}" if given.node else ""
    return f"{rank} {node}".strip()


def _evidence(given: VerdictEvidence) -> list[str]:
    """The evidence in words, without uninformative parts."""
    lines = [f"{_where(entry)}: {_outcome(entry)}" for entry in given.ranks]
    if given.launcher_rank is not None:
        lines.append(f"launcher rank {given.launcher_rank}")
    if given.stop_reason:
        lines.append(f"stop reason {given.stop_reason}")
    return lines


def _outcome(given: RankExit) -> str:
    if given.signal is not None:
        return _signal(given.signal)
    return "no exit seen" if given.exit_code is None else f"exit code {given.exit_code}"
