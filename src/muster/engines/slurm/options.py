"""What a cluster on Slurm can be configured with, checked at the door."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from muster.clusters.options import Flag, Options
from muster.defaults import LINGER_S, SLURM_POLL_S, SLURM_WARNING_S
from muster.engines.slurm.parsing import seconds_of

MPIRUN = "mpirun"

_WORD = re.compile(r"[A-Za-z0-9][\w.+:=,@%/\[\]()|&*!-]*")


def _one_word(value: str) -> str:
    if not _WORD.fullmatch(value):
        raise ValueError(f"{value!r} is no name that Slurm takes; give one word without spaces or quotes")
    return value


def _time(value: Any) -> Any:
    """Minutes, or Slurm's own ways to write a time; kept in seconds."""
    if isinstance(value, int | float):
        return float(value) * 60
    if isinstance(value, str):
        try:
            return seconds_of(value)
        except ValueError:
            raise ValueError(f"{value!r} is no time; give minutes, or [days-]hours:minutes:seconds") from None
    return value


def _lines(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _sbatch_line(value: str) -> str:
    line = value.removeprefix("#SBATCH").strip()
    if not line.startswith("-") or "\n" in line or "\r" in line:
        raise ValueError(f"{value!r} is no option of sbatch; give lines such as `--reservation=monday`")
    if re.split(r"[=\s]", line)[0] in _MUSTERS_OWN:
        raise ValueError(f"{line.split('=')[0]} is Muster's to set")
    return line


def _mpi(value: str) -> str:
    if value != MPIRUN and not re.fullmatch(r"pmix\w*", value):
        raise ValueError(f"{value!r} starts no MPI ranks; give {MPIRUN}, or pmix for `srun --mpi=pmix`")
    return value


Word = Annotated[str, AfterValidator(_one_word)]
Line = Annotated[str, AfterValidator(_sbatch_line)]
_MUSTERS_OWN = frozenset(
    {"--job-name", "-J", "--nodes", "-N", "--ntasks", "-n", "--ntasks-per-node", "--output", "-o", "--array", "-a",
     "--wrap", "--parsable", "--export", "--open-mode", "--requeue", "--no-requeue", "--signal"}
)  # fmt: skip


class SlurmOptions(Options):
    """The settings of every cluster, and those that clusters on Slurm have in addition."""

    described_in: ClassVar[str] = "docs/slurm.md"
    owner: ClassVar[str] = "a cluster on Slurm"

    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    constraint: Word | None = None
    exclude: Word | None = None
    """Nodes to keep off, as Slurm writes them: `bad[01-03],old7`."""
    gres: Word | None = None
    """What each node is asked for, such as `gpu:a100:4`; absent: the GPUs that the job wants, all unless it says."""
    time: Annotated[float, Field(gt=0), BeforeValidator(_time)] | None = None
    """Of one Slurm job, in minutes or as Slurm writes times; for runs without a limit, and for each link of a chain."""
    sbatch: Annotated[list[Line], BeforeValidator(_lines)] = []
    """Further #SBATCH lines."""
    exclusive: bool = False
    mpi: Annotated[str, AfterValidator(_mpi)] = MPIRUN
    """Who starts the ranks of MPI jobs: Muster's mpirun, or `srun` with this plugin of Slurm's."""
    requeue: bool = True
    """Slurm may put the job back into its queue when a node fails or is taken back: the next attempt."""
    chain: bool = False
    """A run longer than one Slurm job may be goes on in the next, from its last checkpoint."""
    signal_seconds: Annotated[int, Field(ge=1, le=65535)] = SLURM_WARNING_S
    """How long before the time limit the ranks get SIGTERM."""
    connection: Literal["auto", "tls", "files"] = "auto"
    """How agents reach the server: over TLS, through the workspace's folder, or whichever works."""
    server_address: str | None = None
    """The login node's name or address as compute nodes see it."""
    server_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    poll_seconds: Annotated[float, Field(ge=0.1, le=600)] = SLURM_POLL_S
    """How often Slurm is asked about the jobs, with one call for all of them."""
    linger_seconds: Annotated[float, Field(ge=0)] = LINGER_S
    """How long nodes are kept for a server that is away once nothing runs on them; what is left is delivered later."""
    python: str | None = None
    """The Python that has Muster on the compute nodes; absent: the server's own."""


FLAGS = (
    Flag("partition", "NAME", "the partition."),
    Flag("account", "NAME", "who is charged."),
    Flag("qos", "NAME", "the quality of service."),
    Flag("constraint", "FEATURES", "features that nodes must have."),
    Flag("gres", "GRES", "resources of each node, such as gpu:a100:4."),
    Flag("time", "TIME", "the time limit of one Slurm job."),
    Flag("exclude", "NODES", "nodes not to use."),
    Flag("sbatch", "LINE", "a further #SBATCH line; repeatable.", "texts"),
    Flag("chain", "", "go on in a next job when the time is up.", "switch"),
)


WITHOUT_EFFECT = {
    "min_nodes": "Slurm's nodes come with a job and go with it",
    "idle_seconds_before_scaledown": "Slurm's nodes come with a job and go with it",
    "subnet": "Slurm's nodes are where they are",
    "vnet": "Slurm's nodes are where they are",
    "preemption": "who preempts whom is for Slurm to decide",
}
