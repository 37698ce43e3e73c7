"""`muster doctor --nodes N`: a gang that measures the network between its nodes, and what that means."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from muster.cli.console import Paint, say
from muster.cli.doctor.advice import Judgement, Measurement, Node, Pair, judge
from muster.cli.following.follower import follow
from muster.cli.text import counted, size, table
from muster.client.connect import connect
from muster.client.submit import submit
from muster.errors import RunFailed
from muster.job.explain import make_spec
from muster.wire import states
from muster.wire.codec import Json, from_json
from muster.wire.runs import RunView

GANG = Path(__file__).parent / "gang"
RESULT = "outputs/network.json"
TIMEOUT_S = 600


@dataclass(frozen=True)
class NetworkReport:
    """The measurements of a run, and what they mean."""

    run: str
    nodes: tuple[Node, ...]
    pairs: tuple[Pair, ...]
    all_pairs: bool
    judgement: Judgement


def job(num_nodes: int, compute: str) -> dict[str, Json]:
    """The job that measures: one process on each node."""
    return {
        "display_name": "doctor",
        "experiment_name": "doctor",
        "code": str(GANG),
        "command": ["python", "measure.py"],
        "compute": compute,
        "resources": {"instance_count": num_nodes},
        "distribution": {"type": "pytorch"},
        "limits": {"timeout": TIMEOUT_S},
    }


def examine(num_nodes: int, compute: str, images_per_s: float | None) -> NetworkReport:
    """Run the gang and judge what it measured; RunFailed with the verdict where it did not come to an end."""
    client = connect()
    view = submit(client, make_spec(job(num_nodes, compute)), GANG, python=sys.executable)
    say(f"measuring on {counted(num_nodes, 'node')} of {compute} (run {view.id}) …")
    status = follow(client, view, quiet=True)
    view = client.run(view.id)
    if status != states.COMPLETED:
        raise _failure(view)
    measured = from_json(Measurement, json.loads(client.read_file(view.id, RESULT)))
    return report(view, measured, images_per_s)


def report(view: RunView, measured: Measurement, images_per_s: float | None = None) -> NetworkReport:
    """The measurement with the nodes' names, and its meaning."""
    names = {node.rank: node.name for node in view.attempts[-1].nodes}
    nodes = tuple(replace(node, name=names.get(node.rank, f"node {node.rank}")) for node in measured.nodes)
    return NetworkReport(view.id, nodes, measured.pairs, measured.all_pairs, judge(measured, images_per_s))


def _failure(view: RunView) -> RunFailed:
    verdict = view.verdict
    more = (*verdict.lines[-5:], verdict.next) if verdict else ()
    return RunFailed(
        f"the measurement failed: {verdict.message if verdict else view.status}",
        hint="\n".join(filter(None, (*more, f"muster show {view.id}"))),
    )


def lines(found: NetworkReport, paint: Paint) -> list[str]:
    """The report as lines for people."""
    names = {node.rank: node.name for node in found.nodes}
    judged = found.judgement
    header = ("NODE", "ADDRESS", "INTERFACE", "CPUS", "MEMORY", "GPUS", "INFINIBAND", "DISK WRITE")
    shown = table(header, [_node(node) for node in found.nodes])
    if found.pairs:
        shown += ["", *table(("BETWEEN", "ROUND TRIP", "BANDWIDTH"), _pairs(found.pairs, names))]
        if not found.all_pairs:
            shown.append(f"{len(names)} nodes have many pairs: only neighbours were measured")
    return [*shown, "", f"{paint(judged.level, 'green' if judged.level == 'ok' else 'yellow')}  {judged.said}"]


def _node(node: Node) -> tuple[str, ...]:
    return (
        node.name,
        node.address,
        node.interface or "-",
        str(node.cpus),
        size(node.memory_bytes),
        f"{len(node.gpus)} x {node.gpus[0]}" if node.gpus else "none",
        f"{node.infiniband_gbit:g} Gb/s" if node.infiniband_gbit else "none",
        f"{size(int(node.disk_bytes_per_s))}/s" if node.disk_bytes_per_s else "failed",
    )


def _pairs(pairs: Sequence[Pair], names: Mapping[int, str]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for pair in pairs:
        between = " and ".join(names[rank] for rank in pair.nodes)
        if pair.error:
            rows.append((between, "-", pair.error))
        else:
            rows.append((between, f"{pair.round_trip_s * 1e3:.3f} ms", _rate(pair.bytes_per_s)))
    return rows


def _rate(bytes_per_s: float) -> str:
    bits = bytes_per_s * 8
    return f"{bits / 1e9:.2f} Gb/s" if bits >= 1e9 else f"{bits / 1e6:.1f} Mb/s"
