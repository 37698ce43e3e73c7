"""The settings of a cluster on Slurm, checked when they come in."""

from __future__ import annotations

import re
import shlex
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from muster.clusters.options import Flag, Options
from muster.defaults import LINGER_S, SLURM_POLL_S, SLURM_WARNING_S
from muster.engines.slurm.containers import Runtime
from muster.engines.slurm.parsing import seconds_of

MPIRUN = "mpirun"

_WORD = re.compile(r"[A-Za-z0-9][\w.+:=,@%/\[\]()|&*!-]*")


def _one_word(value: str) -> str:
    if not _WORD.fullmatch(value):
        raise ValueError(f"{value!r} is no name that Slurm takes; give one word without spaces or quotes")
    return value


def _time(value: Any) -> Any:
    """Minutes, or Slurm's own time formats; stored in seconds."""
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
    if any(word in line.split() for word in _HETEROGENEOUS):
        raise ValueError(
            f"{value!r} asks for a heterogeneous job, and the nodes of a run are alike; make a cluster of each kind of "
            "node and a run on each"
        )
    if not line.startswith("-") or "\n" in line or "\r" in line:
        raise ValueError(f"{value!r} is no option of sbatch; give lines such as `--reservation=monday`")
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ValueError(f"{value!r} cannot be taken apart: {error}") from None
    # One line may hold several options.
    if own := next((word for word in words if _is_musters(word)), None):
        raise ValueError(f"{own.split('=')[0]} is Muster's to set")
    return line


def _is_musters(word: str) -> bool:
    """Whether sbatch reads a word as an option of Muster's own: also shortened, or joined with its value or others."""
    if word.startswith("--"):
        name = word.split("=")[0]
        return name in _MUSTERS_OWN or (len(name) > 3 and any(own.startswith(name) for own in _MUSTERS_OWN))
    if not word.startswith("-"):
        return False
    for letter in word[1:]:
        if f"-{letter}" in _MUSTERS_OWN:
            return True
        if letter not in _SWITCHES:
            # The rest is its value.
            return False
    return False


def _mpi(value: str) -> str:
    if value != MPIRUN and not re.fullmatch(r"pmix\w*", value):
        raise ValueError(f"{value!r} starts no MPI ranks; give {MPIRUN}, or pmix for `srun --mpi=pmix`")
    return value


def _mail(value: Any) -> Any:
    given = value if isinstance(value, list) else str(value).split(",")
    names = [str(item).strip().upper() for item in given]
    if unknown := [name for name in names if name not in _MAIL_TYPES]:
        raise ValueError(f"{unknown[0]!r} is no event that Slurm writes mail about; give {', '.join(_MAIL_TYPES)}")
    return ",".join(names)


def _host(value: str) -> str:
    if not re.fullmatch(r"(?:[\w][\w.-]*@)?[A-Za-z0-9][\w.-]*", value):
        raise ValueError(f"{value!r} is no host; give HOST or USER@HOST, as in `ssh HOST`")
    return value


def _image(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9/.~][\w.:/@#+~-]*", value):
        raise ValueError(f"{value!r} is no image; give one of a registry, or a file of the site")
    return value


def _mount(value: str) -> str:
    if not re.fullmatch(r"/[^:,\s]*(:/[^:,\s]*)?", value):
        raise ValueError(f"{value!r} is no folder; give /PATH or /PATH:/INSIDE")
    return value


def _text(value: str) -> str:
    if not value.isprintable() or '"' in value or "\\" in value:
        raise ValueError(f"{value!r} cannot be passed on; give one line without quotes or backslashes")
    return value


_MAIL_TYPES = ("NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT",
               "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50")  # fmt: skip
_HETEROGENEOUS = ("hetjob", "packjob", ":")
_SWITCHES = "HhIkKOQsVvWX"
"""Short options of sbatch that take no value, and so may be followed by others in one word."""
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

    ssh: Annotated[str, AfterValidator(_host)] | None = None
    """The login node, where Slurm's commands are not on this machine: a name in the user's ssh configuration."""
    partition: Word | None = None
    """One, or several separated by commas: Slurm takes the one that starts first."""
    account: Word | None = None
    qos: Word | None = None
    constraint: Word | None = None
    reservation: Word | None = None
    licenses: Word | None = None
    """As `sbatch --licenses`: `matlab:2`."""
    comment: Annotated[str, AfterValidator(_text)] | None = None
    mail_type: Annotated[str, BeforeValidator(_mail)] | None = None
    """The events about which Slurm sends mail: `END,FAIL`."""
    mail_user: Word | None = None
    exclude: Word | None = None
    """Nodes to avoid, as Slurm writes them: `bad[01-03],old7`."""
    gres: Word | None = None
    """Requested on each node, such as `gpu:a100:4`; absent: the GPUs that the job wants, all unless it says."""
    time: Annotated[float, Field(gt=0), BeforeValidator(_time)] | None = None
    """Of one Slurm job, in minutes or Slurm's formats; for runs without a limit, and for each link of a chain."""
    array_limit: Annotated[int, Field(ge=1)] | None = None
    """At most so many runs at a time of those that were submitted together, and so are one job array."""
    sbatch: Annotated[list[Line], BeforeValidator(_lines)] = []
    """Further #SBATCH lines."""
    exclusive: bool = False
    mpi: Annotated[str, AfterValidator(_mpi)] = MPIRUN
    """Who starts the ranks of MPI jobs: Muster's mpirun, or `srun` with this plugin of Slurm's."""
    container: Annotated[str, AfterValidator(_image)] | None = None
    """An image for agents and ranks: from a registry, or a file of the site (`.sif`, `.sqsh`)."""
    container_runtime: Runtime = "pyxis"
    """The program that starts it: pyxis (`srun --container-image`), apptainer or enroot."""
    container_mounts: list[Annotated[str, AfterValidator(_mount)]] = []
    """Folders of the nodes that are mounted inside, besides the workspace's: `/scratch`, `/data:/mnt/data`."""
    requeue: bool = True
    """Slurm may requeue the job when a node fails or is reclaimed: that is the next attempt."""
    chain: bool = False
    """A run longer than one Slurm job may be continues in the next, from its last checkpoint."""
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
    """How long idle nodes are kept while the server is away; what is left is delivered later."""
    python: str | None = None
    """The Python that has Muster on the compute nodes; absent: the server's own."""


FLAGS = (
    Flag("ssh", "HOST", "the login node, where it is not this machine."),
    Flag("partition", "NAME", "the partition."),
    Flag("account", "NAME", "who is charged."),
    Flag("qos", "NAME", "the quality of service."),
    Flag("constraint", "FEATURES", "features that nodes must have."),
    Flag("reservation", "NAME", "a reservation of the site."),
    Flag("licenses", "NAME:N", "licences that every job takes."),
    Flag("comment", "TEXT", "a comment on every job."),
    Flag("mail_type", "EVENTS", "what Slurm writes mail about, such as END,FAIL."),
    Flag("mail_user", "ADDRESS", "where that mail goes."),
    Flag("gres", "GRES", "resources of each node, such as gpu:a100:4."),
    Flag("time", "TIME", "the time limit of one Slurm job."),
    Flag("exclude", "NODES", "nodes not to use."),
    Flag("container", "IMAGE", "what agents and ranks run in."),
    Flag("container_runtime", "NAME", "pyxis (default), apptainer or enroot."),
    Flag("sbatch", "LINE", "a further #SBATCH line; repeatable.", "texts"),
    Flag("chain", "", "continue in another job when the time is up.", "switch"),
)


WITHOUT_EFFECT = {
    "min_nodes": "its nodes come with a job and go with it; engine slurm-pool keeps some",
    "idle_seconds_before_scaledown": "its nodes come with a job and go with it; engine slurm-pool keeps some",
    "vnet": "Slurm's nodes are where they are",
    "preemption": "Slurm decides which jobs preempt others",
    "max_passed_over": "Slurm decides which jobs pass others",
}
