"""MPI without processes: kinds, commands, environments. Commands are compared with golden files."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from muster.launch.mpi import (
    INTEL,
    MPICH,
    OPEN_MPI,
    Host,
    Kind,
    command,
    named,
    recognise,
    srun_command,
    tuning,
    without_batch_system,
)

GOLDEN = Path(__file__).parent / "golden_mpirun.txt"
KINDS = (Kind(OPEN_MPI, "5.0.11"), Kind(OPEN_MPI, "4.1.4"), Kind(MPICH, "5.0.2"), Kind(INTEL, "2021.13"))
HOSTS = (Host("gpu-0", 4), Host("gpu-1", 4))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("mpirun (Open MPI) 5.0.11\n\nReport bugs to …\n", Kind(OPEN_MPI, "5.0.11")),
        ("mpirun (Open MPI) 4.1.4\n", Kind(OPEN_MPI, "4.1.4")),
        ("mpirun.openmpi (OpenRTE) 4.1.2\n", Kind(OPEN_MPI, "4.1.2")),
        ("HYDRA build details:\n    Version:                                 5.0.2\n", Kind(MPICH, "5.0.2")),
        (
            "Intel(R) MPI Library for Linux* OS, Version 2021.13 Build 20240515 (id: df741590f)\n",
            Kind(INTEL, "2021.13"),
        ),
        ("Open MPI v5.0.11, package: Open MPI user@host Distribution", Kind(OPEN_MPI, "5.0.11")),
        ("MPICH Version:      5.0.2\nMPICH ABI: …", Kind(MPICH, "5.0.2")),
        ("Intel(R) MPI Library 2021.13 for Linux* OS", Kind(INTEL, "2021.13")),
        ("HP MPI 2.3", None),
        ("", None),
    ],
)
def test_a_kind_is_known_by_its_version_text(text: str, kind: Kind | None) -> None:
    assert recognise(text) == kind


def test_intel_mpi_and_mpich_belong_together_and_open_mpi_to_neither() -> None:
    families = [kind.family for kind in KINDS]
    assert families == [OPEN_MPI, OPEN_MPI, MPICH, MPICH]


def test_the_commands_are_those_on_file() -> None:
    lines = []
    for kind in KINDS:
        for loopback, root in ((False, False), (True, True)):
            made = command(kind, "mpirun", HOSTS, settings={}, loopback=loopback, root=root)
            lines.append(f"{kind}{', simulated nodes, as root' if root else ''}\n  {shlex.join(made)}\n")
    text = "\n".join(lines)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert GOLDEN.read_text() == text


@pytest.mark.parametrize(
    ("kind", "name", "left_out"),
    [
        (KINDS[0], "PRTE_MCA_hwloc_default_binding_policy", "--bind-to"),
        (KINDS[0], "PRTE_MCA_rmaps_default_mapping_policy", "--map-by"),
        (KINDS[1], "OMPI_MCA_hwloc_base_binding_policy", "--bind-to"),
        (KINDS[1], "OMPI_MCA_rmaps_base_mapping_policy", "--map-by"),
    ],
)
def test_what_the_user_chose_is_left_to_mpirun(kind: Kind, name: str, left_out: str) -> None:
    assert left_out in command(kind, "mpirun", HOSTS, settings={})
    assert left_out not in command(kind, "mpirun", HOSTS, settings={name: "core"})


def test_mpirun_sees_no_batch_system() -> None:
    env = {
        "SLURM_JOB_ID": "1",
        "SLURMD_NODENAME": "a",
        "PBS_NODEFILE": "b",
        "PMI_RANK": "0",
        "PMIX_NAMESPACE": "x",
        "PMIX_MCA_gds": "hash",
        "HOME": "/root",
    }
    assert without_batch_system(env) == {"PMIX_MCA_gds": "hash", "HOME": "/root"}


def test_ranks_are_tuned_only_where_they_share_a_machine() -> None:
    assert tuning(None, crowded=False) == {}
    assert tuning("lo", crowded=False)["OMPI_MCA_btl_tcp_if_include"] == "lo"
    assert tuning(None, crowded=True) == {"OMPI_MCA_mpi_yield_when_idle": "1"}


def test_names_of_nodes_have_no_dots_because_mpirun_would_cut_them_off() -> None:
    assert named("run-7f.2.13") == "run-7f-2-13"


def test_srun_makes_a_step_beside_that_of_the_agents() -> None:
    made = srun_command("/usr/bin/srun", "pmix", "4711", HOSTS, "/w/bin/muster-stand-in")
    assert shlex.join(made) == (
        "/usr/bin/srun --jobid=4711 --mpi=pmix --nodes=2 --ntasks=8 --ntasks-per-node=4 --distribution=block --overlap "
        "--overcommit --mem=0 --kill-on-bad-exit=1 --wait=0 --input=none --export=NONE /w/bin/muster-stand-in"
    )
