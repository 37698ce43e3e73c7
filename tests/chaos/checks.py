"""What must hold after a fault, whichever it was."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from tests.chaos.record import Done, Record, numbers_in
from tests.chaos.waiting import Stuck, until

from muster.client.api import Client
from muster.errors import MusterError, NotFound
from muster.paths import NodePaths, shared_memory_dir

LEFT_S = 180.0
"""How long processes, folders and the like may stay after a run: nodes that came with it are cleared each minute."""


@dataclass(frozen=True)
class Expected:
    """How the attempt that met the fault ends, and then the run."""

    codes: tuple[str, ...] = ("completed",)
    """Verdicts that name the fault."""
    rank: int | None = None
    node: str | None = None
    retried: bool = False
    """Another attempt follows and completes."""
    loses: str = ""
    """Why bytes of the attempt may be missing, where the fault takes them away; a prefix stays."""
    exact: bool = True
    """False where it depends on the moment whether the fault meets the run at all."""


def broken(
    client: Client, record: Record, run_id: str, expected: Expected, lines: int, left: Leftovers, most_s: float
) -> list[str]:
    """What does not hold of a run that has ended; empty: all is well."""
    # First: a node that was given up delivers what it has when it comes back, and only then forgets it.
    leftovers = left.of(run_id)
    view = client.run(run_id)
    shown: dict[str, Any] = json.loads(json.dumps(_plain(view)))
    found = [*_wrong_verdict(shown, expected), *_wrong_bytes(client, record, shown, expected, lines)]
    found += [*_tracebacks(client, shown), *_wrong_times(shown, most_s)]
    return [*found, *leftovers]


def _plain(view: object) -> Any:
    from muster.wire.codec import to_json

    return to_json(view)


def _wrong_verdict(view: dict[str, Any], expected: Expected) -> Iterator[str]:
    attempts = view["attempts"]
    if not attempts:
        yield f"{view['status']} without an attempt"
        return
    first = attempts[0]["verdict"] or {"code": f"none ({attempts[0]['status']})"}
    wanted = (*expected.codes, "completed") if not expected.exact else expected.codes
    if first["code"] not in wanted:
        yield f"the verdict is {first['code']} ({first.get('message', '')}), not {' or '.join(wanted)}"
        return
    if first["code"] != "completed" and expected.rank is not None and first.get("rank") != expected.rank:
        yield f"rank {first.get('rank')} is blamed, not rank {expected.rank}"
    if first["code"] != "completed" and expected.node is not None and first.get("node") != expected.node:
        yield f"node {first.get('node')} is blamed, not node {expected.node}"
    if first["code"] == "completed" or expected.retried:
        wanted_status = "Completed"
    else:
        wanted_status = "Canceled" if first["code"] == "cancelled" else "Failed"
    if view["status"] != wanted_status:
        yield f"the run is {view['status']}, not {wanted_status}: {(view['verdict'] or {}).get('message')}"
    most = 2 if expected.retried else 1
    if len(attempts) > most:
        yield f"{len(attempts)} attempts, at most {most}: {[item['verdict'] for item in attempts]}"


def _wrong_bytes(client: Client, record: Record, view: dict[str, Any], expected: Expected, lines: int) -> Iterator[str]:
    """Nothing that a rank printed, logged or wrote is missing, and nothing is there twice."""
    points: dict[tuple[int, int], list[int]] = {}
    for point in client.metrics(view["id"]):
        if point.name == "number" and point.rank is not None:
            points.setdefault((point.attempt, point.rank), []).append(int(float(str(point.value))))
    for attempt in view["attempts"]:
        for rank in attempt["ranks"]:
            key = (attempt["number"], rank["rank"])
            done = record.of(view["id"], *key)
            mild = bool(expected.loses) and attempt["number"] == 1
            numbers = numbers_in(_log(client, view["id"], attempt, rank), view["id"], *key)
            yield from _gaps("printed", key, numbers, done.printed, mild)
            yield from _gaps("logged", key, points.get(key, []), done.logged, mild)
            if attempt["status"] == "Completed":
                yield from _incomplete(client, view["id"], attempt, rank, done, lines)


def _gaps(what: str, key: tuple[int, int], numbers: list[int] | str, done: int, mild: bool) -> Iterator[str]:
    where = f"attempt {key[0]}, rank {key[1]}"
    if isinstance(numbers, str):
        yield f"{where}: its log has a line that it never printed: {numbers[:80]!r}"
        return
    if numbers != list(range(len(numbers))):
        repeated = len(numbers) - len(set(numbers))
        yield f"{where}: {what} {repeated} twice, or not in order: {numbers[:20]}…"
    # A rank may be ended between doing something and writing it down.
    elif not (done <= len(numbers) <= done + 1) and not (mild and len(numbers) <= done + 1):
        yield f"{where}: it {what} {done}, and {len(numbers)} are there"


def _incomplete(
    client: Client, run_id: str, attempt: dict[str, Any], rank: dict[str, Any], done: Done, lines: int
) -> Iterator[str]:
    where = f"attempt {attempt['number']}, rank {rank['rank']}"
    if done.printed != lines or not done.ended:
        yield f"{where}: Completed after {done.printed} of {lines} lines"
        return
    name = f"outputs/rank_{rank['rank']}.txt"
    try:
        text = client.read_file(run_id, name)
    except NotFound:
        yield f"{where}: {name} is missing"
        return
    if text != f"{run_id}.{attempt['number']}.{rank['rank']} wrote this\n".encode():
        yield f"{where}: {name} holds {text[:80]!r}"


def _log(client: Client, run_id: str, attempt: dict[str, Any], rank: dict[str, Any]) -> bytes:
    newest = client.run(run_id).attempts[-1].number
    name = rank["log"] if attempt["number"] == newest else f"attempts/{attempt['number']}/{rank['log']}"
    try:
        return client.read_file(run_id, name)
    except NotFound:
        return b""


def _wrong_times(view: dict[str, Any], most_s: float) -> Iterator[str]:
    """Nothing took longer than the seed did, or less than no time, whatever became of the clock."""
    spans = [(f"attempt {item['number']}", item["created_at"], item["ended_at"]) for item in view["attempts"]]
    for attempt in view["attempts"]:
        for rank in attempt["ranks"]:
            where = f"rank {rank['rank']} of attempt {attempt['number']}"
            spans.append((where, rank["started_at"], rank["ended_at"]))
    for what, began, ended in spans:
        if began is not None and ended is not None and not -0.5 <= ended - began <= most_s + 0.5:
            yield f"{what} lasted {ended - began:.1f} s, says Muster; the whole seed took {most_s:.1f} s"


def _tracebacks(client: Client, view: dict[str, Any]) -> Iterator[str]:
    """Nobody is shown a stack of Muster's own code."""
    notes = [event.text for event, _ in client.stream(view["id"], follow=False) if event.kind == "note"]
    for text in (json.dumps(view), *notes):
        if "Traceback (most recent" in text or "failed with an internal error" in text:
            yield f"a fault inside Muster is shown: {text[-300:]}"


@dataclass
class Leftovers:
    """What a run must not leave behind on this machine."""

    nodes: Path
    """The folder of the nodes' folders."""

    def of(self, run_id: str) -> list[str]:
        try:
            until(lambda: not self._now(run_id), "nothing left", LEFT_S)
        except Stuck:
            return [f"left behind: {', '.join(self._now(run_id))}"]
        return []

    def _now(self, run_id: str) -> list[str]:
        found = [f"process {item.pid} ({' '.join(_command(item))[:60]})" for item in marked(run_id)]
        for folder in self.nodes.glob(f"*/attempts/{run_id}.*"):
            found.append(f"folder {folder}")
        for folder in [NodePaths(path).attempt(run_id, 1).root for path in self.nodes.glob("*")]:
            if (segment := shared_memory_dir(folder)).exists():
                found.append(f"shared memory {segment}")
        mounts = Path("/proc/mounts").read_text()
        return [*found, *(f"mount {line.split()[1]}" for line in mounts.splitlines() if run_id in line)]


def marked(run_id: str) -> list[psutil.Process]:
    """Living processes of a run, by the mark in their environment."""
    needle, found = f"MUSTER_RUN_ID={run_id}".encode(), []
    for pid in psutil.pids():
        try:
            if needle in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                process = psutil.Process(pid)
                found += [process] if process.status() != psutil.STATUS_ZOMBIE else []
        except (OSError, psutil.Error):
            continue
    return found


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return ["gone"]


def lost_submissions(client: Client, submitted: Sequence[str]) -> list[str]:
    """Submissions that were answered and are not one run each."""
    known = []
    for run_id in submitted:
        try:
            known.append(client.run(run_id).id)
        except MusterError as error:
            return [f"the run {run_id} was submitted, and now: {error}"]
    listed = [run.id for run in client.runs(limit=10_000)]
    extra = sorted(set(listed) - set(known))
    return [f"runs that nobody submitted, or that were submitted twice: {extra}"] if extra else []
