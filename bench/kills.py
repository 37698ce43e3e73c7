"""A training on 2 ranks, killed at 20 random moments: it completes with the losses of one that was not killed."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.measure import Figure, Workspace, quick, report, temporary_workspace
from bench.restart import TRAIN, wait
from muster.client.submit import submit
from muster.job.explain import make_spec
from muster.wire.runs import RunView

PAUSE_S = 0.05


def main() -> None:
    is_quick = quick(__doc__)
    kills, steps = (4, 60) if is_quick else (20, 300)
    with temporary_workspace() as workspace:
        began = time.monotonic()
        view = killed(workspace, kills, steps)
        took_s = time.monotonic() - began
        found = losses(logs_of(workspace, view.id))
        wanted = losses(unkilled(workspace.folder / "reference", steps))
    same = sum(found.get(key) == value for key, value in wanted.items())
    codes = [attempt.verdict.code for attempt in view.attempts[:-1]]
    figures = [
        Figure("attempts that were killed", len(codes), "", at_least=kills),
        Figure("completed", float(view.status == "Completed"), "", at_least=1),
        Figure(f"losses bit for bit the same, of {len(wanted)}", same, "", at_least=len(wanted)),
        Figure("verdicts that name the killed rank's signal", codes.count("signal"), "", at_least=kills),
        Figure("whole run", took_s, "s"),
    ]
    report("kills", figures, is_quick)


def killed(workspace: Workspace, kills: int, steps: int) -> RunView:
    (workspace.folder / "code").mkdir()
    shutil.copy(TRAIN, workspace.folder / "code" / "train.py")
    spec = make_spec(
        {
            "code": "./code",
            "command": f"python train.py --steps {steps} --pause-s {PAUSE_S}",
            "distribution": {"type": "pytorch", "process_count_per_instance": 2},
            "environment_variables": {"OMP_NUM_THREADS": "1"},
            "retry": {"user_error": kills + 5, "backoff_s": 0},
        }
    )
    client = workspace.client
    run_id = submit(client, spec, workspace.folder, python=sys.executable).id
    dice = random.Random(0)
    for number in range(1, kills + 1):
        attempt = wait(lambda number=number: running(client.run(run_id), number))
        # At any moment: while it starts, connects, resumes, computes, saves or publishes.
        time.sleep(dice.uniform(0.0, 4.0))
        os.kill(attempt.ranks[dice.randrange(2)].pid, signal.SIGKILL)
    return wait(lambda: (v := client.run(run_id)).status in ("Completed", "Failed") and v, 600.0)


def running(view: RunView, number: int) -> Any:
    if view.status in ("Failed", "Completed"):
        raise SystemExit(f"the run ended before it was killed often enough: {view.status} {view.verdict}")
    attempts = view.attempts
    ready = len(attempts) == number and view.status == "Running" and all(r.pid for r in attempts[-1].ranks)
    return attempts[-1] if ready else None


def logs_of(workspace: Workspace, run_id: str) -> str:
    folder = workspace.folder / ".muster" / "store" / "runs" / run_id / "attempts"
    return "".join(path.read_text() for path in sorted(folder.glob("*/user_logs/*.txt")))


def unkilled(folder: Path, steps: int) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(TRAIN)]
    command += ["--steps", str(steps), "--checkpoints", str(folder)]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    return done.stdout


def losses(text: str) -> dict[tuple[int, int], str]:
    """What each rank computed in each step; one that was done twice must have come out the same."""
    found: dict[tuple[int, int], str] = {}
    for step, rank, loss in re.findall(r"step (\d+) rank (\d+) loss (\S+) at", text):
        if found.setdefault((int(step), int(rank)), loss) != loss:
            raise SystemExit(f"step {step} of rank {rank} came out differently the second time")
    return found


if __name__ == "__main__":
    main()
