"""The scripts that Slurm is given, for typical sites; `UPDATE_GOLDEN=1` writes them anew."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from muster import errors
from muster.engines.base import Cluster, Gang, GangRequest
from muster.engines.slurm.options import SlurmOptions
from muster.engines.slurm.parsing import NodeInfo
from muster.engines.slurm.script import limit_for, make_script
from muster.paths import NodePaths

GOLDEN = Path(__file__).parent / "golden"
PYTHON = "/home/ada/venv/bin/python"
CPU_NODES = [NodeInfo(f"cpu{index}", "idle", 64, 256_000, "", 86_400.0) for index in range(4)]
GPU_NODES = [NodeInfo(f"gpu{index}", "idle", 96, 1_000_000, "", 172_800.0, 4) for index in range(4)]

SITES: dict[str, tuple[dict[str, Any], dict[str, Any], list[NodeInfo]]] = {
    "cpu_defaults": ({}, {}, CPU_NODES),
    "gpu_partition": ({"partition": "gpu"}, {"ranks_per_node": 4, "time_limit_s": 7200.0}, GPU_NODES),
    "gres_of_a_type": ({"partition": "gpu", "gres": "gpu:a100:4", "cpus": 32}, {"gpus_per_node": 2}, GPU_NODES),
    "account_and_qos": (
        {"partition": "gpu", "account": "nlp-42", "qos": "long", "constraint": "a100&ib", "exclude": "gpu[7-9]"},
        {"priority": 0, "excluded": ("gpu1", "elsewhere")},
        GPU_NODES,
    ),
    "own_lines": (
        {"partition": "gpu", "exclusive": True, "memory_gb": 480, "requeue": False, "time": "1-00:00:00",
         "sbatch": ["#SBATCH --reservation=monday", "--mail-type=END"]},
        {}, GPU_NODES,
    ),
    "passed_on": (
        {"partition": "gpu,batch", "reservation": "monday", "licenses": "matlab:2", "comment": "night shift",
         "mail_type": "end,fail", "mail_user": "ada@site.org"},
        {}, GPU_NODES,
    ),
    "pyxis": ({"partition": "gpu", "container": "nvcr.io#nvidia/pytorch:24.01-py3", "container_mounts": ["/scratch"]},
              {}, GPU_NODES),
    "apptainer": (
        {"container": "/images/torch.sif", "container_runtime": "apptainer", "container_mounts": ["/data:/mnt/data"]},
        {}, GPU_NODES,
    ),
    "enroot": ({"container": "/images/torch.sqsh", "container_runtime": "enroot"}, {}, CPU_NODES),
    "pmix": ({"partition": "gpu", "mpi": "pmix"}, {"ranks_per_node": 4}, GPU_NODES),
    "chained": ({"partition": "gpu", "chain": True, "time": "4:00:00"}, {"time_limit_s": 604_800.0}, GPU_NODES),
}  # fmt: skip


@pytest.mark.parametrize("site", SITES)
def test_the_script_for_a_site_is_as_recorded(site: str):
    options, gang, nodes = SITES[site]
    text = script(options, gang, nodes)
    path = GOLDEN / f"{site}.sh"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("site", SITES)
def test_the_script_is_a_sound_shell_script(site: str):
    subprocess.run(["bash", "-n", GOLDEN / f"{site}.sh"], check=True)


def test_a_limit_leaves_room_for_muster_to_end_the_run_itself():
    assert limit_for(gang_of(time_limit_s=600.0), SlurmOptions.parse({}), CPU_NODES).minutes == 13


def test_a_limit_never_asks_for_more_than_the_partition_gives():
    assert limit_for(gang_of(time_limit_s=86_400.0), SlurmOptions.parse({}), CPU_NODES).minutes == 1440


def test_a_run_that_can_never_fit_its_partition_is_refused_with_what_to_do():
    with pytest.raises(
        errors.JobError, match=r"limits.timeout is 90000 s, and the partition .* allows 86400 s"
    ) as told:
        limit_for(gang_of(time_limit_s=90_000.0), SlurmOptions.parse({}), CPU_NODES)
    assert "--chain" in told.value.hint


def test_a_chain_asks_for_slices_and_a_last_piece():
    options = SlurmOptions.parse({"chain": True, "time": 240})
    assert limit_for(gang_of(time_limit_s=604_800.0), options, GPU_NODES).minutes == 240
    assert limit_for(gang_of(time_limit_s=600.0), options, GPU_NODES).minutes == 13


def test_nodes_that_failed_are_used_again_where_no_others_are_left():
    text = script({}, {"excluded": ("cpu0", "cpu1", "cpu2")}, CPU_NODES)
    assert "--exclude" not in text


def test_nodes_that_are_down_are_not_counted_among_the_others():
    gang = {"excluded": ("cpu0",)}
    down = [replace(node, state="down*") if node.name in ("cpu1", "cpu2") else node for node in CPU_NODES]
    assert "--exclude=cpu0\n" in script({}, gang, CPU_NODES)
    assert "--exclude" not in script({}, gang, down)
    assert "--exclude=cpu[1-2]\n" in script({"exclude": "cpu[1-2]"}, gang, CPU_NODES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition": "gpu; rm -rf /"}, "partition: .*no name that Slurm takes"),
        ({"sbatch": ["echo hello"]}, "no option of sbatch"),
        ({"sbatch": ["--job-name=mine"]}, "--job-name is Muster's to set"),
        ({"sbatch": ["-Jx"]}, "-Jx is Muster's to set"),
        ({"sbatch": ["-J x"]}, "-J is Muster's to set"),
        ({"sbatch": ["-N4"]}, "-N4 is Muster's to set"),
        ({"sbatch": ["-QHJx"]}, "-QHJx is Muster's to set"),
        ({"sbatch": ["#SBATCH -o/tmp/x"]}, "-o/tmp/x is Muster's to set"),
        ({"sbatch": ["--job-n=mine"]}, "--job-n is Muster's to set"),
        ({"sbatch": ["--reservation=monday --job-name=mine"]}, "--job-name is Muster's to set"),
        ({"sbatch": ["--comment=x -n 99"]}, "-n is Muster's to set"),
        ({"sbatch": ["--comment='x"]}, "cannot be taken apart"),
        ({"time": "soon"}, "time: 'soon' is no time"),
        (
            {"connection": "carrier pigeon"},
            "connection: .carrier pigeon. is not allowed; give .auto., .tls. or .files.",
        ),
    ],
)
def test_settings_that_would_break_the_script_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(errors.JobError, match=message):
        SlurmOptions.parse(options)


def script(options: dict[str, Any], gang: dict[str, Any], nodes: list[NodeInfo]) -> str:
    names = [f"resnet50-k3v9x2ab.1.{rank}" for rank in range(2)]
    folders = {name: NodePaths(Path("/home/ada/.muster/nodes") / name) for name in names}
    request = GangRequest("1f2e3d4c-resnet50-k3v9x2ab.1", Cluster("hpc", "slurm", options), folders, gang_of(**gang))
    return make_script(request, SlurmOptions.parse({"python": PYTHON, **options}), nodes)


def gang_of(**changes: Any) -> Gang:
    return Gang("resnet50-k3v9x2ab", 1, "resnet50", "/home/ada/.muster/handed-on", **changes)


@pytest.mark.parametrize(
    "line", ["--reservation=monday", "-t 5", "-pJune", "--exclusive", "-w node1", "--mail-type=END -C a"]
)
def test_other_lines_are_taken(line: str) -> None:
    assert SlurmOptions(sbatch=[line]).sbatch == [line]


def test_a_part_of_a_gpu_is_refused_by_name() -> None:
    with pytest.raises(errors.JobError, match=r"gpus_per_node 0\.25: Slurm only gives whole GPUs"):
        script({}, {"gpus_per_node": 1, "gpu_share": 0.25}, [])
