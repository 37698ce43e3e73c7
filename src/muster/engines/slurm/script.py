"""The script for Slurm: pure, and written so that a person can read it."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster import errors
from muster.defaults import GRACE_CANCEL_S, START_MARGIN_S
from muster.engines.base import Gang, GangRequest
from muster.engines.slurm.arrays import JobArray
from muster.engines.slurm.containers import Container
from muster.engines.slurm.explanations import node_state
from muster.engines.slurm.names import job_name
from muster.engines.slurm.options import MPIRUN, SlurmOptions
from muster.engines.slurm.parsing import NodeInfo, host_names, num_gpus

_STEP_ENDS_AFTER_S = 90
"""After an agent died: long enough for the server to notice and to stop the others, which end by themselves."""
_CONFIG_PATIENCE_S = 600
_LOW_PRIORITY_NICE = 1000
EXPORT = "ALL"
"""For the few variables that sbatch starts with; a list of names would make Slurm run a login shell first."""


@dataclass(frozen=True)
class Limit:
    """The time limit of one Slurm job."""

    minutes: int | None
    """None: the partition's own."""
    warning_s: int
    """How long before it the ranks get SIGTERM."""


def make_script(request: GangRequest, options: SlurmOptions, nodes: Sequence[NodeInfo]) -> str:
    """The batch script of one attempt: one `srun`, which starts one agent on each node."""
    gang = request.gang
    first = next(iter(request.nodes.values()))
    root = str(first.root).removesuffix(f".{gang.attempt}.0")
    about = f"# Muster: attempt {gang.attempt} of the run {gang.run}. One agent on each node starts its ranks there."
    own = {"job-name": job_name(request.id), "output": file_name(f"{gang.folder}/{request.id}.out")}
    return _script(request, options, nodes, own, [about], shlex.quote(root))


def make_array_script(request: GangRequest, array: JobArray, options: SlurmOptions, nodes: Sequence[NodeInfo]) -> str:
    """The batch script of an array: each task is the attempt of one run; `request` is that of the first of them."""
    stem, first = str(array.list_file.with_suffix("")), next(iter(request.nodes.values()))
    own = {
        "job-name": array.name,
        "array": array.tasks(range(len(array.runs))),
        "output": file_name(f"{stem}.out"),
    }
    begin = [
        f"# Muster: attempt {array.attempt} of {len(array.runs)} runs, one for each task; a file says which.",
        "# One agent on each node starts the run's ranks there.",
        f'run=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {shlex.quote(str(array.list_file))})',
        f'exec >> {shlex.quote(f"{array.folder}/{array.workspace}-")}"$run.{array.attempt}.out" 2>&1',
    ]
    return _script(request, options, nodes, own, begin, f'{shlex.quote(str(first.root.parent))}/"$run"')


def kind_of(request: GangRequest, options: SlurmOptions, nodes: Sequence[NodeInfo]) -> Hashable:
    """A gang's request as a key: gangs with the same one may be tasks of one array."""
    return request.gang.attempt, *_directives(request, options, nodes, {})


def _script(
    request: GangRequest,
    options: SlurmOptions,
    nodes: Sequence[NodeInfo],
    own: Mapping[str, str],
    begin: Sequence[str],
    root: str,
) -> str:
    head = [f"#SBATCH {line}" for line in _directives(request, options, nodes, own)]
    gpus = bool(_gres(request.gang, options, nodes))
    return "\n".join(["#!/bin/bash", *head, "", *begin, *_body(request, options, gpus, root), ""])


def limit_for(gang: Gang, options: SlurmOptions, nodes: Sequence[NodeInfo]) -> Limit:
    """The time limit to request; a refusal where the partition never allows so much."""
    longest_s = longest_limit_s(nodes)
    slice_s = options.time if options.time is not None else longest_s
    wanted_s = gang.time_limit_s
    if wanted_s is None:
        given_s = longest_s if options.time is None and options.chain else options.time
    elif options.chain and slice_s is not None and wanted_s > slice_s:
        given_s = slice_s
    elif longest_s is not None and wanted_s > longest_s:
        raise errors.JobError(
            f"limits.timeout is {wanted_s:g} s, and the partition {options.partition or '(default)'} allows "
            f"{longest_s:g} s",
            "Lower limits.timeout, choose another partition, or create the cluster with --chain.",
        )
    else:
        # Room for preparation and cleanup, so that Muster ends the run, with its grace period.
        given_s = wanted_s + START_MARGIN_S + GRACE_CANCEL_S
        given_s = min(given_s, longest_s) if longest_s is not None else given_s
    minutes = None if given_s is None else max(1, math.ceil(given_s / 60))
    if minutes is not None and longest_s is not None:
        minutes = min(minutes, max(1, int(longest_s // 60)))
    warning_s = options.signal_seconds if minutes is None else max(1, min(options.signal_seconds, minutes * 15))
    return Limit(minutes, warning_s)


def longest_limit_s(nodes: Sequence[NodeInfo]) -> float | None:
    """The longest time limit on these nodes; None: unlimited."""
    if any(node.limit_s is None for node in nodes):
        return None
    return max((node.limit_s for node in nodes if node.limit_s is not None), default=None)


def _directives(
    request: GangRequest, options: SlurmOptions, nodes: Sequence[NodeInfo], own: Mapping[str, str]
) -> list[str]:
    """Options of sbatch; `own` are those that differ between jobs."""
    gang = request.gang
    limit = limit_for(gang, options, nodes)
    given = {
        "job-name": own.get("job-name"),
        "array": own.get("array"),
        **of_the_site(options),
        "exclude": _excluded(gang, options, nodes, len(request.nodes)),
        "nodes": len(request.nodes),
        "ntasks-per-node": 1,
        "cpus-per-task": _cpus(gang, options),
        "gres": _gres(gang, options, nodes),
        "mem": memory_of(options),
        "time": limit.minutes,
        "signal": f"TERM@{limit.warning_s}",
        "nice": _LOW_PRIORITY_NICE if gang.priority == 0 else None,
        "output": own.get("output"),
        "open-mode": "append",
        "export": EXPORT,
    }
    return directive_lines(given, options, options.requeue)


def directive_lines(given: Mapping[str, str | int | None], options: SlurmOptions, requeue: bool) -> list[str]:
    """Options of sbatch, with the cluster's own additions at the end."""
    lines = [f"--{name}={value}" for name, value in given.items() if value is not None]
    if options.exclusive:
        lines.append("--exclusive")
    return [*lines, "--requeue" if requeue else "--no-requeue", *options.sbatch]


def _body(request: GangRequest, options: SlurmOptions, gpus: bool, root: str) -> list[str]:
    """`root`: the folders of the run's nodes, without attempt and number, as the shell reads it."""
    gang, count = request.gang, len(request.nodes)
    cpus = _cpus(gang, options)
    python = options.python or sys.executable
    container = _container(request, options, gpus)
    within = container.prefix if container else []
    step = [
        "srun",
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        *([f"--cpus-per-task={cpus}"] if cpus else []),
        "--mpi=none",
        "--kill-on-bad-exit=0",
        f"--wait={_STEP_ENDS_AFTER_S}",
        *(container.step_options if container else []),
    ]
    return [
        "# A job that Slurm has put back into its queue is the next attempt: its agents wait for the server to say so.",
        f"export MUSTER_NODES={root}.$(({gang.attempt} + ${{SLURM_RESTART_COUNT:-0}}))",
        f"export MUSTER_PYTHON={shlex.quote(python)}",
        *([] if options.mpi == MPIRUN else [f"export MUSTER_AGENT_MPI={options.mpi}"]),
        "agent='",
        '    export MUSTER_AGENT_HOST="$SLURMD_NODENAME"',
        '    config="$MUSTER_NODES.$SLURM_PROCID/agent.json"',
        f'    for second in $(seq {_CONFIG_PATIENCE_S}); do [ -e "$config" ] && break; sleep 1; done',
        '    exec "$MUSTER_PYTHON" -m muster.agent "$config"',
        "'",
        " ".join(["exec", *step, "--export=ALL", *within, "/bin/bash", "-c", '"$agent"']),
    ]


def of_the_site(options: SlurmOptions) -> dict[str, str | int | None]:
    """The cluster's requests to the site for every job."""
    return {
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "constraint": options.constraint,
        "reservation": options.reservation,
        "licenses": options.licenses,
        "comment": f'"{options.comment}"' if options.comment else None,
        "mail-type": options.mail_type,
        "mail-user": options.mail_user,
    }


def memory_of(options: SlurmOptions) -> str | None:
    return f"{math.ceil(options.memory_gb * 1000)}M" if options.memory_gb else None


def _container(request: GangRequest, options: SlurmOptions, gpus: bool) -> Container | None:
    """The container of the agents, with the workspace's folder mounted inside."""
    if options.container is None:
        return None
    workspace = str(Path(request.gang.folder).parent)
    return Container(options.container, options.container_runtime, (workspace, *options.container_mounts), gpus)


def file_name(path: str) -> str:
    """Escaped for sbatch: a percent sign is doubled, and spaces need quotes."""
    escaped = path.replace("%", "%%")
    return f'"{escaped}"' if " " in escaped else escaped


def _cpus(gang: Gang, options: SlurmOptions) -> int | None:
    """The cluster's setting; by default one CPU for each rank."""
    if options.exclusive and options.cpus is None:
        return None
    return options.cpus or gang.ranks_per_node


def _gres(gang: Gang, options: SlurmOptions, nodes: Sequence[NodeInfo]) -> str | None:
    if gang.gpu_share < 1:
        raise errors.JobError(
            f"gpus_per_node {gang.gpu_share:g}: Slurm only gives whole GPUs to its jobs",
            "Ask for 1, or use a cluster that is local, a pool of Slurm's nodes, or of Ray.",
        )
    wanted = gang.gpus_per_node
    if options.gres is not None:
        kind, _, count = options.gres.rpartition(":")
        if wanted is None or not options.gres.startswith("gpu") or "," in options.gres:
            return options.gres
        if not count.isdigit():
            kind = options.gres
        return f"{kind}:{wanted}" if wanted else None
    if wanted is None:
        wanted = options.gpus
    if wanted is None:
        with_gpus = [node.gpus for node in nodes if node.gpus]
        wanted = min(with_gpus) if with_gpus and len(with_gpus) == len(nodes) else 0
    return f"gpu:{wanted}" if wanted else None


def _excluded(gang: Gang, options: SlurmOptions, nodes: Sequence[NodeInfo], wanted: int) -> str | None:
    """The nodes that the cluster avoids, and those that failed this run, where enough others are left."""
    failed = kept_off(gang.excluded, options, nodes, wanted)
    return ",".join([*([options.exclude] if options.exclude else []), *failed]) or None


def kept_off(excluded: Collection[str], options: SlurmOptions, nodes: Sequence[NodeInfo], wanted: int) -> list[str]:
    """The nodes that a gang avoids because they failed it; none where too few others work."""
    never = set(host_names(options.exclude or ""))
    working = {node.name for node in nodes if node_state(node)[0] != "unusable"} - never
    failed = {node.name for node in nodes} & set(excluded)
    return sorted(failed - never) if len(working - failed) >= wanted else []


def gpus_per_node(options: SlurmOptions, node: NodeInfo) -> int:
    """The most that a job may request of a node."""
    if options.gres:
        return num_gpus(options.gres)
    return node.gpus if options.gpus is None else min(options.gpus, node.gpus)
