"""A run told in lines: the summary at its end, its verdict, its whole story, the list of runs. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Any

from muster.cli.console import Paint
from muster.cli.state import ENDED, loss, throughput
from muster.cli.text import ago, duration, moment, number, shorten, size, table

View = Mapping[str, Any]

MAX_FILES = 12


def summary(view: View, paint: Paint, now: float) -> list[str]:
    """What somebody wants to know when a run has ended."""
    lines = [headline(view, paint, now)]
    if view["verdict"] and view["status"] == "Failed":
        lines += verdict(view["verdict"], paint)
    name = ref(view)
    rows = [(label, value) for label, value in _figures(view) if value]
    kept = [entry for entry in view["files"] if entry["path"].startswith("outputs/")]
    if kept:
        total = size(sum(entry["size"] for entry in kept))
        files = "1 file" if len(kept) == 1 else f"{len(kept)} files"
        rows.append(("outputs", f"{files}, {total}: muster download {name} outputs"))
    rows.append(("logs", f"muster logs {name}"))
    rows.append(("metrics" if _logged(view["metrics"]) else "more", f"muster show {name}"))
    return lines + _labelled(rows, paint)


def headline(view: View, paint: Paint, now: float) -> str:
    took = _duration(view, now)
    status = view["status"]
    verb = {"Completed": "in", "Failed": "after", "Canceled": "after"}.get(status, "for")
    parts = [paint(ref(view), "bold"), paint.status(status) + (f" {verb} {took}" if took else "")]
    parts.append(_gang(view))
    return "  ".join(part for part in parts if part)


def verdict(given: View, paint: Paint) -> list[str]:
    """What happened, to which rank on which node, its last words, the evidence, what to do."""
    message = str(given["message"]).splitlines()
    where = _where(given)
    told = not where or where in given["message"]
    lines = ["", paint(given["code"] if told else f"{given['code']}: {where}", "red", "bold")]
    lines += [f"  {line}" for line in message]
    if given.get("lines"):
        lines += ["", paint("  last lines:", "dim"), *(f"    {line}" for line in given["lines"])]
    evidence = [said for key, value in (given.get("evidence") or {}).items() for said in _evidence(key, value)]
    if evidence:
        lines += ["", f"  {paint('evidence:', 'dim')} {'; '.join(evidence)}"]
    if given.get("action"):
        lines += ["", f"  {paint('then:', 'bold')} {given['action']}"]
    if given.get("next"):
        lines += ["", f"  {paint('next:', 'bold')} {given['next']}"]
    return [*lines, ""]


def story(view: View, paint: Paint, now: float) -> list[str]:
    """Everything about one run."""
    lines = [headline(view, paint, now)]
    rows = [
        ("id", view["id"]),
        ("waits for" if view["status"] not in ENDED else "reason", view["reason"]),
        ("experiment", view["experiment"]),
        ("description", view.get("description")),
        ("compute", view["compute"]),
        ("environment", _environment(view.get("environment"))),
        ("submitted", f"{moment(view['created_at'], now)} by {view.get('submitted_by') or 'unknown'}"),
        ("started", moment(view["started_at"], now) if view["started_at"] else None),
        ("ended", moment(view["ended_at"], now) if view["ended_at"] else None),
        ("tags", ", ".join(f"{key}={value}" for key, value in (view.get("tags") or {}).items())),
        ("progress", _progress(view.get("progress"))),
    ]
    lines += _labelled([(label, str(value)) for label, value in rows if value], paint)
    lines += [f"  {paint('notice:', 'yellow')} {text}" for text in view["notices"]]
    if view["verdict"] and view["status"] == "Failed":
        lines += verdict(view["verdict"], paint)
    for attempt in view["attempts"]:
        lines += _attempt(attempt, paint, now, only=len(view["attempts"]) == 1)
    lines += _checkpoints(view, paint, now)
    lines += _metrics(view, paint)
    return lines + _files(view, paint)


def listing(views: Sequence[View], paint: Paint, now: float) -> list[str]:
    """The table of `muster ps`."""
    header = ("RUN", "NAME", "STATUS", "EXPERIMENT", "RANKS", "CREATED", "DURATION", "WHY")
    rows = [
        (
            view["id"],
            shorten(view["display_name"] or view["name"] or "", 28),
            paint.status(view["status"]),
            shorten(view["experiment"], 20),
            f"{view['num_nodes']}x{view['num_ranks'] // max(1, view['num_nodes'])}",
            ago(view["created_at"], now),
            _duration(view, now) or "-",
            shorten(_why(view), 60),
        )
        for view in views
    ]
    return table([paint(title, "dim") for title in header], rows)


def ref(view: View) -> str:
    """How a person calls the run."""
    return str(view.get("name") or view["id"])


def _why(view: View) -> str:
    if view["verdict"] and view["status"] not in ("Completed", "Canceled"):
        return _first_line(view["verdict"]["message"])
    return _first_line(view["reason"] or "")


def _first_line(text: str) -> str:
    return text.split("\n", 1)[0]


def _duration(view: View, now: float) -> str:
    if view["started_at"] is None:
        return ""
    return duration((view["ended_at"] or now) - view["started_at"])


def _gang(view: View) -> str:
    ranks, nodes = view["num_ranks"], view["num_nodes"]
    if not ranks:
        return ""
    return f"{_counted(ranks, 'rank')} on {_counted(nodes, 'node')}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _figures(view: View) -> list[tuple[str, str | None]]:
    value = loss(view["metrics"])
    return [
        ("why", view["verdict"]["message"] if view["verdict"] and view["status"] == "Canceled" else None),
        ("throughput", throughput(view["metrics"])),
        ("loss", None if value is None else number(value)),
    ]


def _logged(metrics: View) -> bool:
    """Whether the script logged something; figures of nodes are there always."""
    return any(not name.startswith("node/") for name in metrics)


def _environment(environment: View | None) -> str | None:
    if not environment:
        return None
    if "key" not in environment:
        return f"{environment['name']}, not built yet"
    packages = _counted(environment["packages"], "package")
    if environment.get("image"):
        on_top = f" and {packages}" if environment["packages"] else ""
        return f"image {environment['image']}{on_top} ({environment['key']}, Python {environment['python']})"
    return f"{environment['name']} ({environment['key']}, Python {environment['python']}, {packages})"


def _progress(progress: View | None) -> str | None:
    if not progress:
        return None
    of = f" of {number(progress['total'])}" if progress.get("total") else ""
    return f"{number(progress['done'])}{of} {progress.get('unit') or ''}".rstrip()


def _attempt(attempt: View, paint: Paint, now: float, only: bool) -> list[str]:
    lines = [""]
    if not only:
        lines += _chapter(attempt, paint, now)
    names = {node["rank"]: node["name"] for node in attempt["nodes"]}
    rows = [
        (
            str(rank["rank"]),
            str(names.get(rank["node"], rank["node"])),
            rank["role"],
            rank["state"],
            _exit(rank),
            duration((rank["ended_at"] or now) - rank["started_at"]) if rank["started_at"] else "-",
            rank["log"] or "",
        )
        for rank in attempt["ranks"]
    ]
    if rows:
        header = [paint(title, "dim") for title in ("RANK", "NODE", "ROLE", "STATE", "EXIT", "DURATION", "LOG")]
        lines += [f"  {line}" for line in table(header, rows)]
    return lines if len(lines) > 1 else []


def _chapter(attempt: View, paint: Paint, now: float) -> list[str]:
    """One attempt among several: when, how it ended, and what followed."""
    began, ended = attempt.get("started_at"), attempt.get("ended_at")
    title = paint(f"attempt {attempt['number']}", "bold") + f"  {paint.status(attempt['status'])}"
    if began:
        title += f"  {moment(began, now)}, {duration((ended or now) - began)}"
    lines = [title]
    if attempt.get("resumed_from") is not None:
        lines.append("  resumed from a checkpoint")
    told = attempt.get("verdict")
    if told and told["code"] != "completed":
        lines.append(f"  {told['code']}: {_first_line(told['message'])}")
    if told and told.get("action"):
        lines.append(f"  {paint('then:', 'dim')} {told['action']}")
    return lines


def _checkpoints(view: View, paint: Paint, now: float) -> list[str]:
    kept = view.get("checkpoints")
    if not kept:
        return []
    rows = [(item["name"], f"{size(item['size'])}, attempt {item['attempt']}, {ago(item['at'], now)}") for item in kept]
    fetch = paint(f"  muster download {ref(view)} checkpoints/{kept[0]['name']}", "dim")
    return ["", paint("checkpoints", "bold"), *_labelled(rows, paint), fetch]


def _exit(rank: View) -> str:
    if rank["signal"] is not None:
        return _signal(rank["signal"])
    return "-" if rank["exit_code"] is None else str(rank["exit_code"])


def _signal(given: int) -> str:
    try:
        return signal.Signals(given).name
    except ValueError:
        return f"signal {given}"


def _metrics(view: View, paint: Paint) -> list[str]:
    if not view["metrics"]:
        return []
    rows = [(name, shorten(number(value), 60)) for name, value in view["metrics"].items()]
    return ["", paint("metrics", "bold"), *_labelled(rows, paint)]


def _files(view: View, paint: Paint) -> list[str]:
    files = view["files"]
    if not files:
        return []
    lines = ["", paint("files", "bold")]
    lines += [f"  {size(entry['size']):>9}  {entry['path']}" for entry in files[:MAX_FILES]]
    if len(files) > MAX_FILES:
        lines.append(f"  … and {len(files) - MAX_FILES} more: muster show {ref(view)} --json")
    return [*lines, f"  muster download {ref(view)}"]


def _labelled(rows: Sequence[tuple[str, str]], paint: Paint) -> list[str]:
    widest = max((len(label) for label, _ in rows), default=0)
    return [f"  {paint(label.ljust(widest), 'dim')}  {value}" for label, value in rows]


def _where(entry: View) -> str:
    rank = f"rank {entry['rank']}" if entry.get("rank") is not None else ""
    node = f"on {entry['node']}" if entry.get("node") else ""
    return f"{rank} {node}".strip()


def _evidence(key: str, value: Any) -> list[str]:
    """What was seen, in words; what says nothing is left out."""
    if value is None or value == "" or value == [] or value == {}:
        return []
    if key == "ranks":
        return [f"{_where(entry)}: {_outcome(entry)}" for entry in value]
    if key == "signal":
        return [_signal(value)]
    shown = number(value) if isinstance(value, (int, float)) else shorten(str(value).replace("\n", " "), 200)
    return [f"{key.replace('_', ' ')} {shown}"]


def _outcome(entry: View) -> str:
    if entry.get("signal") is not None:
        return _signal(entry["signal"])
    return "no exit seen" if entry.get("exit_code") is None else f"exit code {entry['exit_code']}"
