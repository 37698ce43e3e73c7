"""Whether a site would accept the jobs of a cluster: Slurm itself checks a job that is not submitted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from muster import errors
from muster.engines.base import Cluster, Gang, GangRequest
from muster.engines.slurm.commands import Busy, Commands, Later, Refused
from muster.engines.slurm.explanations import duration
from muster.engines.slurm.options import MPIRUN, SlurmOptions
from muster.engines.slurm.parsing import NodeInfo
from muster.engines.slurm.script import longest_limit_s, make_script
from muster.paths import NodePaths

_PASSING = ("down, drained or reserved", "nodes are busy", "Nodes required", "not available (down", "inactive")
_SUSPECTS = (
    "gres",
    "constraint",
    "qos",
    "account",
    "reservation",
    "licenses",
    "cpus",
    "memory_gb",
    "exclude",
    "sbatch",
)
_NODES = "`sinfo -N -o '%N %c %m %G %f'` shows the CPUs, memory, GRES and features of the site's nodes."
_LISTS = {
    "qos": ("QOS", ("sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name")),
    "reservation": ("reservations", ("scontrol", "--oneliner", "show", "reservation")),
    "licenses": ("licences", ("scontrol", "--oneliner", "show", "licenses")),
}
"""The command that lists a site's values of a setting."""

_OVERLAP_SINCE = (20, 11)
"""Steps may share a job's resources (`srun --overlap`)."""


def check_site(commands: Commands, chosen: SlurmOptions, nodes: Sequence[NodeInfo]) -> list[str]:
    """Refuse what this site does not support; returns notices about what could not be checked."""
    longest_s = longest_limit_s(nodes)
    if chosen.time is not None and longest_s is not None and chosen.time > longest_s:
        raise errors.JobError(
            f"time: {duration(chosen.time)} is more than the partition {chosen.partition or '(default)'} allows, "
            f"{duration(longest_s)}",
            "Give less, choose another partition, or create the cluster with --chain.",
        )
    said = _check_account(commands, chosen)
    try:
        commands.try_out(_sample(chosen, nodes))
    except (Busy, Later) as error:
        said.append(f"Slurm did not check the settings now: {error}")
    except Refused as error:
        if any(part in str(error) for part in _PASSING):
            return [*said, f"Slurm could start no job of this cluster now: {error}"]
        raise _explained(commands, chosen, nodes, error) from error
    return said


def _check_account(commands: Commands, chosen: SlurmOptions) -> list[str]:
    if chosen.account is None:
        return []
    known = commands.accounts()
    if known is None:
        return [f"account: this site's accounts cannot be listed, so {chosen.account} is handed on unchecked"]
    if chosen.account not in known:
        raise errors.JobError(
            f"account: you may not charge {chosen.account!r} at this site",
            f"Your accounts: {', '.join(known) or 'none'}.",
        )
    return []


def _explained(
    commands: Commands, chosen: SlurmOptions, nodes: Sequence[NodeInfo], refusal: Refused
) -> errors.JobError:
    """The refusal with the setting to blame: the first one without which Slurm would accept the job."""
    for name in _SUSPECTS:
        value = getattr(chosen, name)
        if not value:
            continue
        without = chosen.model_copy(update={name: SlurmOptions.model_fields[name].default})
        try:
            commands.try_out(_sample(without, nodes))
        except (Busy, Later, Refused):
            continue
        shown = " ".join(value) if isinstance(value, list) else value
        return errors.JobError(
            f"{name}: Slurm would refuse every job with {shown}: {refusal}", _known_here(commands, name)
        )
    return errors.JobError(f"Slurm would refuse every job of this cluster: {refusal}", "See docs/slurm.md.")


def _known_here(commands: Commands, setting: str) -> str:
    """The site's values of a setting."""
    if setting not in _LISTS:
        return _NODES
    what, command = _LISTS[setting]
    names = [name.partition("=")[2] or name for name in commands.listed(*command) if name not in ("No", "(null)")]
    return f"The {what} of this site: {', '.join(names) or 'none'}."


def _sample(chosen: SlurmOptions, nodes: Sequence[NodeInfo]) -> str:
    """The script of a run with one rank on one node."""
    where = {"muster-check.1.0": NodePaths(Path("/tmp/muster-check.1.0"))}
    gang = Gang("muster-check", 1, "muster-check", "/tmp")
    return make_script(GangRequest("0-muster-check.1", Cluster("", "slurm"), where, gang), chosen, nodes)


def check_mpi(commands: Commands, chosen: SlurmOptions) -> None:
    """Refuse features that this Slurm's srun lacks."""
    if chosen.mpi == MPIRUN:
        return
    instead = "Leave mpi out: Muster's own mpirun needs nothing of Slurm."
    known = commands.pmix_plugins()
    if chosen.mpi not in known:
        has = f"of PMIx it has {', '.join(known)}" if known else "it has no PMIx"
        raise errors.JobError(f"mpi: this Slurm's srun does not know --mpi={chosen.mpi}; {has}", instead)
    if commands.version < _OVERLAP_SINCE:
        version = ".".join(f"{part:02}" for part in commands.version)
        raise errors.JobError(f"mpi: {chosen.mpi} needs Slurm 20.11 or newer, and this is {version}", instead)


def check_container(commands: Commands, chosen: SlurmOptions) -> None:
    """Refuse pyxis where srun does not support it; whether compute nodes have the others shows in the first job."""
    if chosen.container and chosen.container_runtime == "pyxis" and not commands.has_pyxis():
        raise errors.JobError(
            "container: this Slurm's srun does not know --container-image, so it has no pyxis",
            "Give container_runtime: apptainer or enroot, or have the site install pyxis.",
        )
