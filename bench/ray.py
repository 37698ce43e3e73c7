"""A warm two-node Ray cluster: from submission to every rank's first line, with Muster and with the Ray jobs SDK."""

from __future__ import annotations

import re
import statistics
import sys
import time

import psutil
from tests.sites.ray import RaySite, missing

from bench.measure import Figure, Workspace, interleave, log_lines, median, quick, report, temporary_workspace
from muster.client.submit import submit
from muster.job.explain import make_spec

COMMAND = "date +'began %s.%N'"
RANKS = 2

# What users without Muster would submit: a driver that runs the command once on each of two nodes.
DRIVER = f"""
import subprocess
import ray
from ray.util import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

ray.init(logging_level="ERROR")
group = placement_group([{{"CPU": 1}}] * {RANKS}, strategy="STRICT_SPREAD")
ray.get(group.ready())

@ray.remote(num_cpus=1)
def rank():
    return subprocess.run(["bash", "-c", {COMMAND!r}], capture_output=True, text=True, check=True).stdout

strategies = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index) for index in range({RANKS})]
print("".join(ray.get([rank.options(scheduling_strategy=item).remote() for item in strategies])))
"""

# Runs on the head, where the dashboard listens; prints the time of submission and the job's output.
BY_SDK = """
import sys, time
from ray.job_submission import JobSubmissionClient
client = JobSubmissionClient(sys.argv[1])
began = time.time()
job = client.submit_job(entrypoint=f"{sys.executable} {sys.argv[2]}")
while not client.get_job_status(job).is_terminal():
    time.sleep(0.02)
print("submitted", began)
print(client.get_job_logs(job))
"""


def main() -> None:
    is_quick = quick(__doc__)
    if lacking := missing():
        print(f"ray: not measured, {lacking}")
        return
    site = RaySite(hosts=2, dashboard=True)
    try:
        site.start()
        (site.root / "driver.py").write_text(DRIVER)
        (site.root / "by_sdk.py").write_text(BY_SDK)
        with temporary_workspace() as workspace:
            workspace.client.create_cluster("many", "ray", site.options)
            samples = interleave(
                2 if is_quick else 9, {"sdk": lambda: by_sdk(site), "muster": lambda: by_muster(workspace)}
            )
            broker = memory_mb(site.broker())
    finally:
        site.close()
    ratio = statistics.median(samples["muster"]) / statistics.median(samples["sdk"])
    figures = [
        median("Ray jobs SDK: submit to the last rank's first line", samples["sdk"], "s"),
        median("muster: submit to the last rank's first line", samples["muster"], "s"),
        Figure("muster against the Ray jobs SDK", ratio, "", at_most=0.5),
        Figure("the broker's memory", broker, "MB", at_most=150.0),
    ]
    report("ray", figures, is_quick)


def by_sdk(site: RaySite) -> float:
    said = site.ray("python", str(site.root / "by_sdk.py"), site.dashboard, str(site.root / "driver.py"))
    began = float(re.findall(r"submitted (\d+\.\d+)", said)[0])
    return last_beginning(said) - began


def by_muster(workspace: Workspace) -> float:
    job = {
        "command": COMMAND,
        "compute": "many",
        "resources": {"instance_count": RANKS},
        "distribution": {"type": "pytorch", "process_count_per_instance": 1},
    }
    began = time.time()
    run_id = submit(workspace.client, make_spec(job), workspace.folder, python=sys.executable).id
    while (run := workspace.client.run(run_id)).status not in ("Completed", "Failed"):
        time.sleep(0.02)
    if run.status == "Failed":
        raise SystemExit(f"{run_id} failed: {run.verdict}")
    return last_beginning("\n".join(line for lines in log_lines(workspace.client, run) for line in lines)) - began


def last_beginning(printed: str) -> float:
    times = re.findall(r"began (\d+\.\d+)", printed)
    if len(times) != RANKS:
        raise SystemExit(f"{RANKS} ranks should have said when they began:\n{printed}")
    return max(map(float, times))


def memory_mb(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 1e6


if __name__ == "__main__":
    main()
