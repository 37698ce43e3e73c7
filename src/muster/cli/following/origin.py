"""Records a run's provenance; imported once the run is submitted."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from muster.client.api import Client
from muster.client.provenance import record
from muster.job.jobfile import LoadedJob
from muster.wire.runs import RunView


def keep(client: Client, views: Sequence[RunView], job: LoadedJob) -> None:
    """Collect and send it in the background."""
    folder = job.base_dir / job.spec.code if job.spec.code else job.base_dir
    record(client, [view.id for view in views], folder, ["muster", *sys.argv[1:]])
