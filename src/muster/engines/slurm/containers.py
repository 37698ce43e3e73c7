"""Command lines that start the agents of a job inside a container: pyxis, apptainer, enroot. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Runtime = Literal["pyxis", "apptainer", "enroot"]

_PASSED = (
    "MUSTER_NODES", "MUSTER_PYTHON", "MUSTER_AGENT_MPI", "MUSTER_AGENT_HOST", "SLURMD_NODENAME", "SLURM_PROCID",
    "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "CUDA_VISIBLE_DEVICES", "HOME", "USER", "LOGNAME",
)  # fmt: skip
"""Variables that enroot would not pass on by itself."""


@dataclass(frozen=True)
class Container:
    """The container in which a cluster's agents run."""

    image: str
    runtime: Runtime
    mounts: tuple[str, ...] = ()
    """`PATH`, or `PATH:PATH_INSIDE`."""
    gpus: bool = False

    @property
    def step_options(self) -> list[str]:
        """Options for `srun`."""
        if self.runtime != "pyxis":
            return []
        return [
            shlex.quote(f"--container-image={self.image}"),
            shlex.quote(f"--container-mounts={','.join(map(_both, self.mounts))}"),
            "--container-mount-home",
        ]

    @property
    def prefix(self) -> list[str]:
        """The command prefix on each node."""
        if self.runtime == "pyxis":
            return []
        return [shlex.quote(word) for word in (self._apptainer() if self.runtime == "apptainer" else self._enroot())]

    def _apptainer(self) -> Sequence[str]:
        binds = [word for mount in self.mounts for word in ("--bind", _both(mount))]
        return ["apptainer", "exec", *(["--nv"] if self.gpus else []), *binds, "--pwd", "/", self.image]

    def _enroot(self) -> Sequence[str]:
        mounts = [word for mount in self.mounts for word in ("--mount", _both(mount))]
        passed = [word for name in _PASSED for word in ("--env", name)]
        return ["enroot", "start", "--rw", *mounts, *passed, self.image]


def _both(mount: str) -> str:
    return mount if ":" in mount else f"{mount}:{mount}"
