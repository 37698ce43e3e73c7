"""The script of a pool's job array: each task is one node, and runs an agent until it is sent away. Pure."""

from __future__ import annotations

import hashlib
import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from muster.engines.slurm.arrays import ranges
from muster.engines.slurm.containers import Container
from muster.engines.slurm.parsing import NodeInfo
from muster.engines.slurm.script import EXPORT, directive_lines, file_name, gpus_per_node, memory_of, of_the_site
from muster.engines.slurm_pool.options import PoolOptions


def pool_name(cluster: str, folder: Path) -> str:
    """The name of a pool's arrays in Slurm; `folder` holds its nodes' folders, and so identifies the workspace."""
    return f"{cluster}@muster-pool-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"


def make_pool_script(
    cluster: str, folder: Path, numbers: Sequence[int], options: PoolOptions, nodes: Sequence[NodeInfo]
) -> str:
    """One array for all the nodes that are wanted now; a task's number is its node's."""
    cpus, gpus = shape_of(options, nodes)
    given = {
        "job-name": pool_name(cluster, folder),
        **of_the_site(options),
        "array": ranges(numbers),
        "exclude": options.exclude,
        "nodes": 1,
        "ntasks": 1,
        "cpus-per-task": None if options.exclusive and options.cpus is None else cpus,
        "gres": options.gres or (f"gpu:{gpus}" if gpus else None),
        "mem": memory_of(options),
        "time": max(1, math.ceil(options.time / 60)) if options.time else None,
        "signal": f"TERM@{options.signal_seconds}",
        "output": file_name(f"{folder}/{cluster}-%a.out").replace("%%a", "%a"),
        "open-mode": "append",
        "export": EXPORT,
    }
    head = [f"#SBATCH {line}" for line in directive_lines(given, options, requeue=False)]
    return "\n".join(["#!/bin/bash", *head, "", *_body(cluster, folder, options, gpus), ""])


def shape_of(options: PoolOptions, nodes: Sequence[NodeInfo]) -> tuple[int, int]:
    """CPUs and GPUs of a node of the pool: the cluster's settings, or everything the smallest machine has."""
    cpus = options.cpus or min((node.cpus for node in nodes), default=1)
    return cpus, min((gpus_per_node(options, node) for node in nodes), default=0)


def _body(cluster: str, folder: Path, options: PoolOptions, gpus: int) -> list[str]:
    container = None
    if options.container is not None:
        mounts = (str(folder.parent), *options.container_mounts)
        container = Container(options.container, options.container_runtime, mounts, bool(gpus))
    step = ["srun", "--nodes=1", "--ntasks=1", "--mpi=none", *(container.step_options if container else [])]
    return [
        f"# Muster: nodes of the cluster {cluster}. Each task's agent takes one run after another.",
        f'export MUSTER_CONFIG={shlex.quote(f"{folder}/{cluster}")}-"$SLURM_ARRAY_TASK_ID"/agent.json',
        f"export MUSTER_PYTHON={shlex.quote(options.python or sys.executable)}",
        "agent='",
        '    export MUSTER_AGENT_HOST="$SLURMD_NODENAME"',
        '    exec "$MUSTER_PYTHON" -m muster.agent "$MUSTER_CONFIG"',
        "'",
        " ".join(
            ["exec", *step, "--export=ALL", *(container.prefix if container else []), "/bin/bash", "-c", '"$agent"']
        ),
    ]
