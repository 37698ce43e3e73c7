"""Many seeds on one stage, within a time, from where the last campaign stopped."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.chaos.stage import Stage, home
from tests.chaos.trial import Fault, Outcome, play

ROOT = Path(__file__).parents[2]
LEDGER = ROOT / ".cache" / "chaos.jsonl"
REPORT = ROOT / "bench" / "results" / "chaos.json"
PER_WORKSPACE = 25
"""How many faults a workspace meets before the next one is made."""

Opening = Callable[[Path], Stage]


@dataclass(frozen=True)
class Ground:
    """A kind of stage, and the faults that are injected there."""

    name: str
    engine: str
    make: Opening
    faults: Sequence[Fault]
    missing: Callable[[], str] = lambda: ""
    """Why it cannot be had on this machine; empty: it can."""


def run(ground: Ground, seeds: Iterator[int], until_s: float, ledger: Path = LEDGER) -> list[Outcome]:
    """Play seeds until the time is over; each outcome is in the ledger as soon as it is known."""
    outcomes: list[Outcome] = []
    for seed in seeds:
        outcomes += _workspace(ground, itertools.chain([seed], seeds), until_s, ledger)
        if time.monotonic() >= until_s:
            break
    return outcomes


def _workspace(ground: Ground, seeds: Iterator[int], until_s: float, ledger: Path) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with home() as folder:
        stage = ground.make(folder)
        ending: list[str] = []
        try:
            stage.open()
            while len(outcomes) < PER_WORKSPACE and time.monotonic() < until_s:
                seed = next(seeds, None)
                if seed is None:
                    break
                outcomes.append(play(stage, ground.faults, seed))
                _write(ground, outcomes[-1], ledger)
                if outcomes[-1].broken:
                    # What is left of it might spoil the next ones.
                    break
        finally:
            ending = stage.close()
            if outcomes and (ending or outcomes[-1].broken):
                _keep(ground, stage, outcomes[-1], ledger)
    if ending and outcomes:
        after = Outcome(outcomes[-1].seed, "the end of the workspace", "last", tuple(ending), 0, 0.0)
        _write(ground, after, ledger)
        outcomes.append(after)
    return outcomes


def next_seed(ground: Ground, ledger: Path = LEDGER) -> int:
    """The first seed that has not been played on this ground, as far as the ledger and the report know."""
    played = [int(str(item["seed"])) for item in read(ledger) if item["ground"] == ground.name]
    commits = json.loads(REPORT.read_text())["commits"].values() if REPORT.exists() else ()
    played += [int(commit.get("seeds", {}).get(ground.name, -1)) for commit in commits]
    return max(played, default=-1) + 1


def read(ledger: Path = LEDGER) -> list[dict[str, object]]:
    try:
        return [json.loads(line) for line in ledger.read_text().splitlines()]
    except FileNotFoundError:
        return []


def commit() -> str:
    """Which code was tried; with a plus where it is not committed."""
    if told := os.environ.get("MUSTER_TEST_COMMIT"):
        # A copy of the tree without its history.
        return told
    name = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    dirty = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "src"], cwd=ROOT)
    return name.stdout.strip() + ("+" if dirty.returncode else "")


def _write(ground: Ground, outcome: Outcome, ledger: Path) -> None:
    mark = "ok " if not outcome.broken else "BROKEN"
    print(
        f"{ground.name} {outcome.seed:5} {mark} {outcome.seconds:5.1f} s  {outcome.fault}, {outcome.moment}", flush=True
    )
    for text in outcome.broken:
        print(f"      {text}", flush=True)
    if outcome.broken:
        print(f"      again: make chaos GROUND={ground.name} SEED={outcome.seed}", flush=True)
    ledger.parent.mkdir(parents=True, exist_ok=True)
    row = {"ground": ground.name, "engine": ground.engine, "commit": commit(), "at": time.time(), **asdict(outcome)}
    with ledger.open("a") as file:
        file.write(json.dumps(row) + "\n")


def _keep(ground: Ground, stage: Stage, outcome: Outcome, ledger: Path) -> None:
    """What the logs say of a failure."""
    target = ledger.parent / "chaos-failures" / f"{ground.name}-{outcome.seed}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True, exist_ok=True)
    place = stage.folder / ".muster"
    for log in (*place.glob("server/server.log*"), *place.glob("nodes/*/agent.log")):
        shutil.copy(log, target / f"{log.parent.name}-{log.name}")
    shutil.copytree(stage.record.folder, target / "record", dirs_exist_ok=True)
