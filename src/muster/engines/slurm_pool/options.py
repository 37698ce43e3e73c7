"""What a pool on Slurm can be configured with: what a cluster on Slurm can, but for what only fits one job."""

from __future__ import annotations

from typing import ClassVar

from muster import errors
from muster.engines.slurm.options import SlurmOptions


class PoolOptions(SlurmOptions):
    """The settings of a cluster on Slurm; its nodes stay, so that `min_nodes` and its like have a meaning."""

    owner: ClassVar[str] = "a pool on Slurm"

    def refuse_impossible(self) -> None:
        """A chain is one run's; runs of a pool that are cut are tried again."""
        if self.chain:
            raise errors.JobError("chain means nothing in a pool", "Leave it out: a run that is cut is tried again.")
        if self.array_limit:
            raise errors.JobError("array_limit means nothing in a pool", "max_nodes says how much runs at a time.")
