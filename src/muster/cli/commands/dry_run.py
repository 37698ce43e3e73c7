"""`muster run --dry-run`: the plan of a job."""

from __future__ import annotations

import os
import sys

from muster.cli.console import notice
from muster.cli.options import print_json
from muster.client.connect import connect
from muster.errors import MusterError
from muster.job.check import check_files
from muster.job.jobfile import LoadedJob
from muster.job.spec import JobSpec
from muster.launch.describe import describe
from muster.launch.plan import plan, sample_slots
from muster.wire.codec import to_json


def show_plan(job: LoadedJob, as_json: bool) -> None:
    """The whole plan on simulated nodes, and the script that a site's own queue would be given."""
    notices = [*job.notices, *check_files(job.spec, job.base_dir)]
    slots = sample_slots(job.spec, cpus=os.cpu_count() or 1)
    # What a node builds is found on its PATH.
    python = sys.executable if job.spec.environment is None else "python"
    made = plan(job.spec, slots, run_id="dry-run", attempt=1, python=python)
    script = _script(job.spec, notices)
    if as_json:
        more = {"notices": [*notices, *made.notices], "spec": job.spec.model_dump(mode="json"), "script": script}
        print_json({**to_json(made), **more})
        return
    for text in notices:
        notice(text)
    print(describe(made), end="")
    if script is not None:
        print(f"\n{script}", end="")


def _script(spec: JobSpec, notices: list[str]) -> str | None:
    """What the job's cluster hands to somebody else's queue; only a server knows clusters other than `local`."""
    if spec.compute == "local":
        return None
    try:
        return connect().plan(spec).script
    except MusterError as error:
        notices.append(f"compute {spec.compute}: {error.message}")
        return None
