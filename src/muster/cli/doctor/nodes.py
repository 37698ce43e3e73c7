"""`muster doctor --nodes N`: a gang that measures the network between its nodes, and what that means."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from muster.cli.commands.run import follow
from muster.cli.console import Paint, say
from muster.cli.doctor.advice import Judgement, judge
from muster.cli.text import size, table
from muster.client.connect import connect
from muster.client.submit import submit
from muster.errors import RunFailed
from muster.job.explain import make_spec

GANG = Path(__file__).parent / "gang"
RESULT = "outputs/network.json"
TIMEOUT_S = 600


def job(num_nodes: int, compute: str) -> dict[str, Any]:
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


def examine(num_nodes: int, compute: str, images_per_s: float | None) -> dict[str, Any]:
    """Run the gang and judge what it measured; RunFailed with the verdict where it did not come to an end."""
    client = connect()
    view = submit(client, make_spec(job(num_nodes, compute)), GANG, python=sys.executable)
    say(f"measuring on {num_nodes} node{'s' if num_nodes > 1 else ''} of {compute} (run {view['id']}) …")
    status = follow(client, view, quiet=True)
    view = client.run(view["id"])
    if status != "Completed":
        verdict = view["verdict"] or {}
        raise RunFailed(
            f"the measurement did not come to its end: {verdict.get('message') or status}",
            verdict,
            "\n".join(filter(None, (*verdict.get("lines", ())[-5:], verdict.get("next"), f"muster show {view['id']}"))),
        )
    measured = json.loads(client.read_file(view["id"], RESULT))
    names = {node["rank"]: node["name"] for node in view["attempts"][-1]["nodes"]}
    for node in measured["nodes"]:
        node["name"] = names.get(node["rank"], f"node {node['rank']}")
    return {"run": view["id"], **measured, "judgement": asdict(judge(measured, images_per_s))}


def lines(found: Mapping[str, Any], paint: Paint) -> list[str]:
    """The report as a person reads it."""
    names = {node["rank"]: node["name"] for node in found["nodes"]}
    judged = Judgement(**found["judgement"])
    told = [
        *table(("NODE", "ADDRESS", "INTERFACE", "CPUS", "MEMORY", "GPUS", "INFINIBAND", "DISK WRITE"), _nodes(found))
    ]
    if found["pairs"]:
        told += ["", *table(("BETWEEN", "ROUND TRIP", "BANDWIDTH"), _pairs(found["pairs"], names))]
        if not found["all_pairs"]:
            told.append(f"{len(names)} nodes have many pairs: only neighbours were measured")
    return [*told, "", f"{paint(judged.level, 'green' if judged.level == 'ok' else 'yellow')}  {judged.said}"]


def _nodes(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            node["name"],
            node["address"],
            node["interface"] or "-",
            str(node["cpus"]),
            size(node["memory_bytes"]),
            f"{len(node['gpus'])} x {node['gpus'][0]}" if node["gpus"] else "none",
            f"{node['infiniband_gbit']:g} Gb/s" if node["infiniband_gbit"] else "none",
            f"{size(int(node['disk_bytes_per_s']))}/s" if node["disk_bytes_per_s"] else "failed",
        )
        for node in found["nodes"]
    ]


def _pairs(pairs: Sequence[Mapping[str, Any]], names: Mapping[int, str]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for pair in pairs:
        between = " and ".join(names[rank] for rank in pair["nodes"])
        if "error" in pair:
            rows.append((between, "-", str(pair["error"])))
        else:
            rows.append((between, _milliseconds(pair["round_trip_s"]), _rate(pair["bytes_per_s"])))
    return rows


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


def _rate(bytes_per_s: float) -> str:
    bits = bytes_per_s * 8
    return f"{bits / 1e9:.2f} Gb/s" if bits >= 1e9 else f"{bits / 1e6:.1f} Mb/s"
