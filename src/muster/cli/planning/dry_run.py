"""`muster run --dry-run`: the plan of a job."""

from __future__ import annotations

import os
import sys

from muster.cli.console import notice
from muster.cli.options import print_json
from muster.cli.planning.environment import check_data, planned
from muster.client.connect import connect
from muster.errors import MusterError
from muster.job.check import check_files
from muster.job.jobfile import LoadedJob
from muster.job.spec import JobSpec
from muster.launch.data_sources import data_sources
from muster.launch.describe import describe
from muster.launch.plan import plan, sample_slots
from muster.wire.codec import to_json
from muster.wire.node.plan import PlanView


def show_plan(job: LoadedJob, as_json: bool) -> None:
    """Print the whole plan, for nodes like those of the job's cluster, and the script for its queue."""
    notices = [*job.notices, *check_files(job.spec, job.base_dir)]
    environment = planned(job.spec, job.base_dir)
    notices += environment.notices
    notices += check_data(job.spec)
    # A Python that a node builds is found on its PATH.
    python = sys.executable if job.spec.environment is None else "python"
    made = _of_cluster(job.spec, python, notices) or _of_this_machine(job.spec, python)
    if as_json:
        more = {"notices": [*notices, *made.notices], "spec": job.spec.model_dump(mode="json"), "script": made.script}
        more["environment"] = environment.summary or None
        print_json({**to_json(made), **more})
        return
    for text in notices:
        notice(text)
    print(describe(made), end="")
    if environment.summary or made.data:
        print("", *filter(None, (environment.summary, *made.data)), sep="\n")
    if made.script is not None:
        print(f"\n{made.script}", end="")


def _of_cluster(spec: JobSpec, python: str, notices: list[str]) -> PlanView | None:
    """The plan for the job's cluster; only a server knows clusters other than `local`."""
    if spec.compute == "local":
        return None
    try:
        return connect().plan(spec, python)
    except MusterError as error:
        notices.append(f"compute {spec.compute}: {error.message}; the plan is for this machine instead")
        return None


def _of_this_machine(spec: JobSpec, python: str) -> PlanView:
    made = plan(spec, sample_slots(spec, cpus=os.cpu_count() or 1), run_id="dry-run", attempt=1, python=python)
    return PlanView(made.nodes, made.notices, data=data_sources(spec, len(made.nodes), shared=False))
