"""Starting an example and reading what its ranks report."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.frameworks.cases import Case

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "launchers"
TIMEOUT_S = 400
# Processes that share a log write a line and its end apart, so two lines may stand in one.
REPORT = re.compile(r"rank (\d+) of (\d+): loss ([\d.]+) -> ([\d.]+), weights ([0-9a-f]{12}|[\d.,-]+)")
EVALUATED = re.compile(r"evaluator: loss ([\d.]+), weights ([0-9a-f]{12})")


@dataclass(frozen=True)
class Report:
    """What one rank says of its training."""

    rank: int
    world_size: int
    first_loss: float
    last_loss: float
    weights: str


@dataclass(frozen=True)
class Training:
    """How an example went."""

    problem: str | None
    seconds: float
    said: str


def train(case: Case, bin_dir: Path, folder: Path, *, sdk: bool = False) -> Training:
    """Run a case with the Python and the Muster of `bin_dir`, in a folder with a workspace."""
    by_sdk = [bin_dir / "python", EXAMPLES / "submit.py", case.sdk_name]
    by_file = [bin_dir / "muster", "run", EXAMPLES / f"{case.example}.yml", *case.options]
    started = time.monotonic()
    try:
        done = _call(by_sdk if sdk else by_file, folder, timeout_s=TIMEOUT_S - 100)
    except subprocess.TimeoutExpired as expired:
        # It would keep the nodes from the next case.
        _call([bin_dir / "muster", "cancel", "@latest", "--force"], folder, timeout_s=60)
        return Training(f"not at its end after {expired.timeout:.0f} s", expired.timeout, _text(expired.stdout))
    said = done.stdout + done.stderr
    problem = f"exit code {done.returncode}" if done.returncode else _trouble(case, said)
    return Training(problem or _misfit(case, bin_dir, folder), time.monotonic() - started, said)


def _call(command: Sequence[object], folder: Path, *, timeout_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def _text(captured: bytes | str | None) -> str:
    return captured.decode(errors="replace") if isinstance(captured, bytes) else captured or ""


def _trouble(case: Case, said: str) -> str | None:
    """What is wrong with the ranks' reports; None: nothing."""
    reports = [
        Report(int(match[1]), int(match[2]), float(match[3]), float(match[4]), match[5])
        for match in REPORT.finditer(said)
    ]
    if sorted(report.rank for report in reports) != list(range(case.reports)):
        return f"{case.reports} ranks should report, these did: {sorted(report.rank for report in reports)}"
    if any(report.world_size != case.reports for report in reports):
        return f"the ranks do not know how many they are: {reports}"
    if not all(report.last_loss < 0.8 * report.first_loss for report in reports):
        return f"the loss did not fall: {reports}"
    weights = {report.weights for report in reports}
    if "evaluator" in case.example:
        weights |= {match[2] for match in EVALUATED.finditer(said)} or {"nothing from the evaluator"}
    return f"the ranks have different weights: {weights}" if len(weights) > 1 else None


def _misfit(case: Case, bin_dir: Path, folder: Path) -> str | None:
    """Muster's own account: the run completed, and on as many nodes as the case says."""
    run = json.loads(_call([bin_dir / "muster", "show", "@latest", "--json"], folder, timeout_s=60).stdout)
    nodes = {rank["node"] for rank in run["attempts"][-1]["ranks"]}
    if run["status"] != "Completed" or len(nodes) != case.nodes:
        return f"the run is {run['status']} on {len(nodes)} nodes; Completed on {case.nodes} was expected"
    return None
