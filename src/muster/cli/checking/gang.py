"""The last part of `muster cluster check`: a small gang on the cluster, and what it found."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.cli.console import say
from muster.cli.text import counted, duration, size
from muster.client.api import Client
from muster.client.submit import submit
from muster.job.explain import make_spec
from muster.wire import states
from muster.wire.clusters import ClusterView, Finding
from muster.wire.codec import Json, from_json
from muster.wire.message import wire
from muster.wire.runs import RunView

PROBE = Path(__file__).parent / "probe"
TIMEOUT_S = 300
_LOOK_S = 0.5
_MAX_SKEW_S = 5.0
_ENOUGH_BYTES = 5 << 30


@wire
class NodeReport:
    """What one node of the gang found."""

    rank: int
    host: str
    python: str
    at: float
    free_bytes: int
    temporary_free_bytes: int
    torch: str
    sees_folder: bool
    reduced: bool
    reduce_s: float


@dataclass(frozen=True)
class Window:
    """When the gang ran, by this machine's clock."""

    began: float
    ended: float


def job(num_nodes: int, cluster: str, file: str) -> dict[str, Json]:
    """One process on each of two nodes."""
    return {
        "display_name": "check",
        "experiment_name": states.CHECKS,
        "code": str(PROBE),
        "command": ["python", "probe.py"],
        "compute": cluster,
        "resources": {"instance_count": num_nodes},
        "distribution": {"type": "pytorch"},
        "environment_variables": {"CHECK_FILE": file},
        "limits": {"timeout": TIMEOUT_S},
    }


def examine(client: Client, view: ClusterView, folder: Path, wait_s: float) -> list[Finding]:
    """Run the gang on two nodes where the cluster has them, and judge what it found; `folder`: the workspace's."""
    num_nodes = min(2, max(1, view.max_nodes))
    mark = folder / f"check-{time.time_ns():x}"
    mark.write_text("written by `muster cluster check`\n")
    began = time.time()
    try:
        run = submit(client, make_spec(job(num_nodes, view.name, str(mark))), PROBE, python=sys.executable)
        say(f"running on {counted(num_nodes, 'node')} of {view.name} (run {run.id}) …")
        run = _ended(client, run, wait_s)
        if run.status != states.COMPLETED:
            return [_failure(run, wait_s)]
        reports = [
            from_json(NodeReport, json.loads(client.read_file(run.id, f"outputs/node_{rank}.json")))
            for rank in range(num_nodes)
        ]
        names = {node.rank: node.name for node in run.attempts[-1].nodes}
        return list(judge(reports, names, Window(began, time.time()), view.lent and view.engine == "slurm"))
    finally:
        for path in folder.glob(f"{mark.name}*"):
            path.unlink(missing_ok=True)


def judge(reports: Sequence[NodeReport], names: dict[int, str], window: Window, shared: bool) -> Iterator[Finding]:
    """What the nodes' reports mean. Pure."""
    who = [names.get(report.rank, report.host) for report in reports]
    slowest_s = max(report.reduce_s for report in reports)
    on = f"on {' and '.join(who)}"
    if len(reports) > 1:
        yield Finding("all-reduce", "ok", f"{counted(len(reports), 'node')} added up {on} in {duration(slowest_s)}")
    else:
        yield Finding("all-reduce", "warn", f"the cluster has one node ({who[0]}): nothing between nodes was tried")
    yield _versions(reports)
    yield from _folder(reports, who, shared)
    yield _disk(reports, who)
    yield _clocks(reports, who, window)


def _versions(reports: Sequence[NodeReport]) -> Finding:
    pythons, torches = ({getattr(report, name) or "none" for report in reports} for name in ("python", "torch"))
    text = f"Python {', '.join(sorted(pythons))}; torch {', '.join(sorted(torches))}"
    if len(pythons) > 1:
        return Finding("versions", "fail", text, "Give the nodes one Python: `--option python=PATH`.")
    return Finding("versions", "ok" if len(torches) == 1 else "warn", text)


def _folder(reports: Sequence[NodeReport], who: Sequence[str], shared: bool) -> Iterator[Finding]:
    blind = [name for name, report in zip(who, reports, strict=True) if not report.sees_folder]
    if not blind:
        yield Finding("folder", "ok", "the nodes see the workspace's folder, and may write there")
    elif shared:
        advice = "Put the workspace into a folder that the nodes see under the same path, usually your home."
        yield Finding("folder", "fail", f"{', '.join(blind)} cannot use the workspace's folder", advice)
    else:
        yield Finding("folder", "ok", "the nodes do not see the workspace's folder, and need not")


def _disk(reports: Sequence[NodeReport], who: Sequence[str]) -> Finding:
    least = min(zip(reports, who, strict=True), key=lambda item: min(item[0].free_bytes, item[0].temporary_free_bytes))
    free = min(least[0].free_bytes, least[0].temporary_free_bytes)
    if free < _ENOUGH_BYTES:
        advice = "Logs, outputs and checkpoints need room on the node until they are delivered."
        return Finding("node disk", "warn", f"only {size(free)} are free on {least[1]}", advice)
    return Finding("node disk", "ok", f"at least {size(free)} are free on each node")


def _clocks(reports: Sequence[NodeReport], who: Sequence[str], window: Window) -> Finding:
    """A clock outside the time in which the gang ran is certainly wrong."""
    wrong = []
    for name, report in zip(who, reports, strict=True):
        if report.at < window.began - _MAX_SKEW_S:
            wrong.append(f"{name} is {duration(window.began - report.at)} behind")
        elif report.at > window.ended + _MAX_SKEW_S:
            wrong.append(f"{name} is {duration(report.at - window.ended)} ahead")
    if wrong:
        return Finding("clocks", "fail", "; ".join(wrong), "Start chrony or ntpd there: TLS and file times go wrong.")
    return Finding("clocks", "ok", f"within {_MAX_SKEW_S:g} s of this machine's, as far as a run shows")


def _ended(client: Client, run: RunView, wait_s: float) -> RunView:
    """The ended run; one that has not started in time is cancelled."""
    until, shown = time.monotonic() + wait_s, ""
    while True:
        view = client.run(run.id)
        if view.status in states.TERMINAL:
            return view
        waits = view.status in (states.QUEUED, states.PROVISIONING)
        if waits and view.reason and view.reason != shown:
            shown = view.reason
            say(f"  {shown}")
        if waits and time.monotonic() > until:
            client.cancel(run.id)
            return view
        time.sleep(_LOOK_S)


def _failure(run: RunView, wait_s: float) -> Finding:
    if run.status in (states.QUEUED, states.PROVISIONING):
        advice = "The way there is fine as far as it could be walked. --wait gives it longer."
        return Finding("gang", "warn", f"did not start within {duration(wait_s)}: {run.reason}", advice)
    verdict = run.verdict
    last = f" ({verdict.lines[-1].strip()})" if verdict and verdict.lines else ""
    text = f"{verdict.code}: {verdict.message}{last}" if verdict else run.status
    return Finding("gang", "fail", text, (verdict.next if verdict else "") or f"muster show {run.id}")
