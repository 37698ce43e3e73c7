"""`muster run` with the server warm to the first gloo all-reduce of 2 ranks, against `torchrun` of the same script."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.measure import Figure, Workspace, interleave, log_lines, median, quick, report, temporary_workspace

SCRIPT = """
import sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
sys.stdout.write(f"reduced {time.time()}\\n")  # one write, or the lines of two ranks could mix
dist.destroy_process_group()
"""


def main() -> None:
    is_quick = quick(__doc__)
    client_parts: list[float] = []
    with temporary_workspace() as workspace:
        (workspace.folder / "code").mkdir()
        (workspace.folder / "code" / "reduce.py").write_text(SCRIPT)
        samples = interleave(
            2 if is_quick else 9,
            {"torchrun": lambda: by_torchrun(workspace), "muster": lambda: by_muster(workspace, client_parts)},
        )
    ratio = statistics.median(samples["muster"]) / statistics.median(samples["torchrun"])
    figures = [
        median("torchrun", samples["torchrun"], "s"),
        median("muster run", samples["muster"], "s"),
        Figure("muster run against torchrun", ratio, "", at_most=1.0),
        median("the client's part: start to accepted", client_parts[1:], "s", at_most=0.3),
    ]
    report("launch", figures, is_quick)


def by_torchrun(workspace: Workspace) -> float:
    torchrun = Path(sys.executable).with_name("torchrun")
    command = [str(torchrun), "--standalone", "--nproc-per-node", "2", "reduce.py"]
    began = time.time()
    done = subprocess.run(
        command,
        cwd=workspace.folder / "code",
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return reduced_at(done.stdout) - began


def by_muster(workspace: Workspace, client_parts: list[float]) -> float:
    muster = Path(sys.executable).with_name("muster")
    began = time.time()
    subprocess.run(
        [str(muster), "run", "reduce.py", "--procs", "2"],
        cwd=workspace.folder / "code",
        check=True,
        stdout=subprocess.DEVNULL,
    )
    run = workspace.client.run("@latest")
    client_parts.append(run["created_at"] - began)
    return max(reduced_at("\n".join(lines)) for lines in log_lines(workspace.client, run)) - began


def reduced_at(printed: str) -> float:
    """When the slowest of the ranks had its first result; other libraries' lines may stand in between."""
    times = re.findall(r"reduced (\d+\.\d+)", printed)
    if not times:
        raise SystemExit(f"no rank said that it had reduced:\n{printed}")
    return max(map(float, times))


if __name__ == "__main__":
    main()
