"""Muster on a real Slurm: the start of a gang against `sbatch` of an `srun` script, many small runs against
`sbatch --array`, and how long a run takes to continue after Slurm has lost its node."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
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
from muster.client.submit import submit, submit_many
from muster.job.explain import make_spec
from muster.wire import states

COMMAND = f"""{sys.executable} -c 'import time; print("first", time.time(), flush=True)'"""
JOB = """\
command: {command}
compute: hpc
resources: {{instance_count: 2}}
distribution: {{type: pytorch, process_count_per_instance: 1}}
"""
_PATIENCE_S = 60.0
_MANY = 200
_MANY_S = 1800.0


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
            many = 20 if is_quick else _MANY
            # As many CPUs as the array gets and, as there, no GPUs.
            pool = {**options, "cpus": site.cpus, "gpus": 0, "max_nodes": len(site.nodes) - 1}
            array_s = by_array(site, many)
            workspace.client.create_cluster("small", "slurm-pool", pool)
            pooled_s, submit_s = by_runs(workspace, many, "small")
            again_s, _ = by_runs(workspace, many, "small")
            workspace.client.delete_cluster("small")
            _wait_until_idle(site)
            tasks_s, _ = by_runs(workspace, many // 4, "hpc")
            goes_on_s = after_a_lost_node(workspace, site)
    finally:
        site.close()
    more = statistics.median(samples["muster"]) - statistics.median(samples["sbatch"])
    figures = [
        median("sbatch of an srun script", samples["sbatch"], "s"),
        median("muster run", samples["muster"], "s"),
        Figure("what muster run takes more", more, "s", at_most=0.5),
        Figure(f"sbatch --array of {many} small tasks", array_s, "s"),
        Figure(f"{many} small runs in a pool that starts with them", pooled_s, "s"),
        Figure("of it until all were submitted", submit_s, "s"),
        Figure(f"{many} small runs in a pool that is there", again_s, "s"),
        Figure(f"{many // 4} small runs, each a task of one array", tasks_s, "s"),
        Figure("small runs in a pool against an array", pooled_s / array_s, "x", at_most=1.2),
        Figure("a lost node's run goes on after Slurm's notice", goes_on_s, "s", at_most=15.0),
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


def by_array(site: SlurmSite, count: int) -> float:
    """An array of `count` tasks that each start Python once."""
    command = ["sbatch", "--parsable", "-p", "batch", f"--array=1-{count}", "--output=/dev/null", "--wrap"]
    began = time.monotonic()
    subprocess.run([*command, f"srun {sys.executable} -c pass"], check=True, capture_output=True, cwd="/")
    _wait_until_idle(site, _MANY_S)
    return time.monotonic() - began


def by_runs(workspace: Workspace, count: int, cluster: str) -> tuple[float, float]:
    """`count` runs that each start Python once: the time until the last has ended, and until all were submitted."""
    spec = make_spec({"command": f"{sys.executable} -c pass", "compute": cluster, "resources": {"gpus_per_node": 0}})
    began = time.monotonic()
    views = submit_many(workspace.client, [spec] * count, workspace.folder, python=sys.executable)
    runs = [view.id for view in views]
    submitted_s = time.monotonic() - began
    deadline = time.monotonic() + _MANY_S
    for run_id in runs:
        while (view := workspace.client.run(run_id)).status not in states.TERMINAL:
            if time.monotonic() > deadline:
                raise SystemExit(f"{run_id} did not end within {_MANY_S:g} s")
            time.sleep(0.05)
        if view.status != states.COMPLETED:
            raise SystemExit(f"{run_id} ended as {view.status}: {view.verdict}")
    return time.monotonic() - began, submitted_s


def after_a_lost_node(workspace: Workspace, site: SlurmSite) -> float:
    """From the moment at which Slurm says that a node is down to the next attempt's first line."""
    command = f"echo $MUSTER_ATTEMPT >> {workspace.folder}/attempts; [ $MUSTER_ATTEMPT = 2 ] || exec sleep 600"
    spec = make_spec({"command": command, "compute": "hpc", "retry": {"backoff_s": 0}})
    run_id = submit(workspace.client, spec, workspace.folder, python=sys.executable).id
    attempts = workspace.folder / "attempts"
    _wait(lambda: attempts.exists(), "the first attempt")
    node = workspace.client.run(run_id).attempts[0].nodes[0].name
    site.kill_node(node)
    _wait(lambda: site.command("sinfo", "-h", "-p", "urgent", "-n", node, "-o", "%t").startswith("down"), "the notice")
    noticed = time.monotonic()
    _wait(lambda: "2" in attempts.read_text(), "the next attempt")
    took_s = time.monotonic() - noticed
    site.start_node(node)
    wait_for_run(workspace.client, run_id)
    return took_s


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 2 * _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not come within {2 * _PATIENCE_S:g} s")
        time.sleep(0.05)


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


def _wait_until_idle(site: SlurmSite, patience_s: float = _PATIENCE_S) -> None:
    """Wait until the nodes are empty, so that the next measurement begins alike."""
    deadline = time.monotonic() + patience_s
    while site.command("squeue", "-h") and time.monotonic() < deadline:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
