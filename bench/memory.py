"""Resident memory of an idle server and an idle agent, after they have worked."""

from __future__ import annotations

import sys
import time

import psutil

from bench.measure import Figure, processes_of, quick, report, temporary_workspace, wait_for_run
from muster.job.parts import PyTorch
from muster.job.spec import JobSpec

SETTLE_S = 3.0


def main() -> None:
    is_quick = quick(__doc__)
    spec = JobSpec(command=("python", "-c", "print('hello')"), distribution=PyTorch(process_count_per_instance=2))
    with temporary_workspace() as workspace:
        for _ in range(3 if is_quick else 50):
            wait_for_run(workspace.client, workspace.client.submit(spec, python=sys.executable).id)
        time.sleep(SETTLE_S)
        server = psutil.Process(workspace.client.health().pid)
        agents = [process for process in processes_of(workspace.folder) if is_agent(process)]
        figures = [
            Figure("idle server", megabytes(server), "MB", at_most=120),
            Figure("idle agent", max(megabytes(agent) for agent in agents), "MB", at_most=40),
            Figure("its nursery", max(nursery_megabytes(agent) for agent in agents), "MB"),
        ]
    report("memory", figures, is_quick)


def is_agent(process: psutil.Process) -> bool:
    try:
        return any(part == "muster.agent" or part.endswith("muster-agent") for part in process.cmdline())
    except psutil.Error:
        return False


def nursery_megabytes(agent: psutil.Process) -> float:
    return sum(megabytes(child) for child in agent.children())


def megabytes(process: psutil.Process) -> float:
    return float(process.memory_info().rss / 1e6)


if __name__ == "__main__":
    main()
