"""Several campaigns at once on one machine, each in a process of its own with its own folders, seeds and ledger."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.chaos import campaign


def run(lanes: int, grounds: Sequence[str], minutes: float, first: int, ledger: Path) -> int:
    """Play seeds in so many lanes; their outcomes are in the ledger at the end. How many lanes saw something break."""
    merge(ledger, left_by_lanes(ledger))
    running = []
    for lane in range(lanes):
        # Each begins with another ground, so that no ground is everybody's at the same time.
        order = [*grounds[lane % len(grounds) :], *grounds[: lane % len(grounds)]]
        words = [sys.executable, "-m", "tests.chaos", "--minutes", str(minutes), "--first", str(first + lane)]
        words += ["--step", str(lanes), "--ledger", str(_ledger_of(ledger, lane))]
        words += [word for name in order for word in ("--ground", name)]
        running.append(subprocess.Popen(words, cwd=campaign.ROOT))
    bad = sum(process.wait() != 0 for process in running)
    merge(ledger, left_by_lanes(ledger))
    return bad


def _ledger_of(ledger: Path, lane: int) -> Path:
    return ledger.with_name(f"{ledger.stem}-lane-{lane}.jsonl")


def left_by_lanes(ledger: Path) -> list[Path]:
    return sorted(ledger.parent.glob(f"{ledger.stem}-lane-*.jsonl"))


def merge(ledger: Path, others: Sequence[Path], *, keep: bool = False) -> int:
    """Add the outcomes that the ledger lacks, in the order of their time; how many."""
    known = {_key(row) for row in campaign.read(ledger)}
    rows = [row for other in others for row in campaign.read(other) if _key(row) not in known]
    ledger.parent.mkdir(parents=True, exist_ok=True)
    with ledger.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in sorted(rows, key=lambda row: float(str(row["at"]))))
    for other in others:
        if not keep:
            other.unlink(missing_ok=True)
    return len(rows)


def _key(row: dict[str, object]) -> tuple[object, ...]:
    return row["ground"], row["seed"], row["fault"], row["at"]
