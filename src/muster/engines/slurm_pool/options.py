"""The settings of a pool on Slurm: those of a cluster on Slurm, except the ones that only fit single jobs."""

from __future__ import annotations

from typing import ClassVar

from muster import errors
from muster.engines.slurm.options import SlurmOptions


class PoolOptions(SlurmOptions):
    """The settings of a cluster on Slurm; its nodes stay, so `min_nodes` and the like apply."""

    owner: ClassVar[str] = "a pool on Slurm"

    def refuse_impossible(self) -> None:
        """Only a single run can be a chain; interrupted runs of a pool are retried."""
        if self.chain:
            raise errors.JobError("chain means nothing in a pool", "Leave it out: a run that is cut is tried again.")
        if self.array_limit:
            raise errors.JobError("array_limit means nothing in a pool", "max_nodes says how much runs at a time.")
