"""From a submission to the first line of 2 and 4 ranks, against starting the same processes by hand."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import (
    Figure,
    Workspace,
    interleave,
    log_lines,
    median,
    quick,
    report,
    temporary_workspace,
    wait_for_run,
)
from muster.job.parts import PyTorch
from muster.job.spec import JobSpec

# A rank's first line has the time at which it was written.
FIRST_LINE = "import time; print(time.time(), flush=True)"


def main() -> None:
    is_quick = quick(__doc__)
    figures = []
    with temporary_workspace() as workspace:
        for num_ranks in (2, 4):
            samples = interleave(
                5 if is_quick else 25,
                {
                    "hand": lambda n=num_ranks: by_hand(n),  # type: ignore[misc]
                    "muster": lambda n=num_ranks: by_muster(workspace, n),  # type: ignore[misc]
                },
            )
            more = statistics.median(samples["muster"]) - statistics.median(samples["hand"])
            figures += [
                median(f"{num_ranks} ranks by hand", samples["hand"], "s"),
                median(f"{num_ranks} ranks by Muster, from sending the submission", samples["muster"], "s"),
                Figure(f"{num_ranks} ranks: Muster adds", more, "s", at_most=0.1),
            ]
    report("start", figures, is_quick)


def by_hand(num_ranks: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder) / str(rank) for rank in range(num_ranks)]
        began = time.time()
        processes = []
        for log in logs:
            with log.open("wb") as stream:
                processes.append(subprocess.Popen([sys.executable, "-c", FIRST_LINE], stdout=stream, stderr=stream))
        for process in processes:
            process.wait()
        return max(float(log.read_text()) for log in logs) - began


def by_muster(workspace: Workspace, num_ranks: int) -> float:
    spec = JobSpec(command=("python", "-c", FIRST_LINE), distribution=PyTorch(process_count_per_instance=num_ranks))
    began = time.time()
    run_id = workspace.client.submit(spec, python=sys.executable).id
    run = wait_for_run(workspace.client, run_id)
    return max(float(lines[0]) for lines in log_lines(workspace.client, run)) - began


if __name__ == "__main__":
    main()
