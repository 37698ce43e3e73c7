"""`muster run` to the first line of every rank on two nodes of a real Slurm, against `sbatch` of an `srun` script."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.sites.slurm import SlurmSite, missing

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

COMMAND = f"""{sys.executable} -c 'import time; print("first", time.time(), flush=True)'"""
JOB = """\
command: {command}
compute: hpc
resources: {{instance_count: 2}}
distribution: {{type: pytorch, process_count_per_instance: 1}}
"""
_PATIENCE_S = 60.0


def main() -> None:
    is_quick = quick(__doc__)
    if lacking := missing():
        raise SystemExit(f"Slurm is not installed here: {', '.join(lacking)}")
    site = SlurmSite()
    try:
        site.start()
        os.environ.update(site.environment)
        with temporary_workspace() as workspace:
            options = {"partition": "batch", "server_address": "127.0.0.1"}
            workspace.client.create_cluster("hpc", "slurm", options)
            (workspace.folder / "job.yml").write_text(JOB.format(command=COMMAND))
            ways = {"sbatch": lambda: by_sbatch(workspace, site), "muster": lambda: by_muster(workspace, site)}
            samples = interleave(2 if is_quick else 9, ways)
    finally:
        site.close()
    more = statistics.median(samples["muster"]) - statistics.median(samples["sbatch"])
    figures = [
        median("sbatch of an srun script", samples["sbatch"], "s"),
        median("muster run", samples["muster"], "s"),
        Figure("what muster run takes more", more, "s", at_most=0.5),
    ]
    report("slurm", figures, is_quick)


def by_sbatch(workspace: Workspace, site: SlurmSite) -> float:
    output = workspace.folder / "bare.out"
    output.unlink(missing_ok=True)
    script = f"#!/bin/bash\nsrun {COMMAND}\n"
    began = time.time()
    command = ["sbatch", "--parsable", "-p", "batch", "-N2", "--ntasks-per-node=1", f"--output={output}"]
    subprocess.run(command, input=script, text=True, check=True, capture_output=True)
    times = _wait_for_lines(output)
    _wait_until_idle(site)
    return max(times) - began


def by_muster(workspace: Workspace, site: SlurmSite) -> float:
    muster = Path(sys.executable).with_name("muster")
    began = time.time()
    subprocess.run(
        [str(muster), "run", "job.yml", "--detach"], cwd=workspace.folder, check=True, stdout=subprocess.DEVNULL
    )
    run = wait_for_run(workspace.client, "@latest")
    times = [float(time_of) for lines in log_lines(workspace.client, run) for time_of in _times("\n".join(lines))]
    _wait_until_idle(site)
    return max(times) - began


def _wait_for_lines(output: Path) -> list[float]:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        found = _times(output.read_text()) if output.exists() else []
        if len(found) == 2:
            return [float(item) for item in found]
        if time.monotonic() > deadline:
            raise SystemExit(f"the bare job printed nothing within {_PATIENCE_S:g} s")
        time.sleep(0.02)


def _times(printed: str) -> list[str]:
    return re.findall(r"first (\d+\.\d+)", printed)


def _wait_until_idle(site: SlurmSite) -> None:
    """The next way finds the same empty nodes."""
    deadline = time.monotonic() + _PATIENCE_S
    while site.command("squeue", "-h") and time.monotonic() < deadline:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
