"""Slurm's messages in plain words: why a job waits, how it ended, the state of a node. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from muster.engines.base import Ending
from muster.engines.slurm.parsing import Job, NodeInfo

_REASONS = {
    "Resources": "waits until enough nodes are free",
    "Priority": "waits behind jobs of higher priority",
    "Dependency": "waits for another job that it depends on",
    "DependencyNeverSatisfied": "waits for a job that did not end as it should have: it will never start",
    "BeginTime": "waits for the moment at which it may begin; a requeued job waits about two minutes",
    "PartitionTimeLimit": "asks for more time than the partition allows: lower limits.timeout, or let it chain",
    "PartitionNodeLimit": "asks for more nodes than the partition allows",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition takes no jobs now",
    "PartitionConfig": "asks for what the partition does not allow",
    "ReqNodeNotAvail": "a node that it needs is down, drained or reserved",
    "NodeDown": "a node that it needs is down",
    "BadConstraints": "no node has what it asks for: look at constraint and gres",
    "Reservation": "waits for its reservation",
    "ReservationDeleted": "its reservation was deleted",
    "JobHeldUser": "is held by its user: `scontrol release` lets it go",
    "JobHeldAdmin": "is held by an administrator",
    "JobHoldMaxRequeue": "is held because it was requeued too often",
    "launch failed requeued held": "could not be launched and is held: `scontrol release` lets it go",
    "Licenses": "waits for a licence",
    "InvalidAccount": "its account is not valid: look at account",
    "InvalidQOS": "its quality of service is not valid: look at qos",
    "QOSNotAllowed": "its quality of service is not allowed in the partition",
    "AccountNotAllowed": "its account may not use the partition",
    "Prolog": "its nodes are being prepared",
    "Cleaning": "is being cleaned up after its last start",
    "JobArrayTaskLimit": "too many tasks of its array run",
    "DeadLine": "cannot meet its deadline any more",
}
_LIMIT = re.compile(r"^(QOS|Assoc)(Grp|Max)(.*?)(PerUser|PerAccount|PerJob|PerNode|Minutes|Limit)*$")
_WHAT = (
    ("Submit", "jobs in the queue"),
    ("Jobs", "jobs"),
    ("GRES", "GPUs"),
    ("Gres", "GPUs"),
    ("Node", "nodes"),
    ("CPU", "CPUs"),
    ("Cpu", "CPUs"),
    ("Mem", "memory"),
    ("Wall", "time"),
    ("Billing", "billing units"),
)


def why_it_waits(job: Job) -> str:
    """Why a job waits in Slurm's queue."""
    return f"in the queue of Slurm as job {job.id}: {_plain(job.reason)}"


def _plain(reason: str) -> str:
    if not reason:
        return "Slurm has not looked at it yet"
    spaced = reason.replace("_", " ")
    known = _REASONS.get(reason) or next((text for name, text in _REASONS.items() if spaced.startswith(name)), "")
    if known:
        return f"{known} ({reason})"
    match = _LIMIT.match(reason)
    if match:
        whose = "the quality of service" if match[1] == "QOS" else "the account"
        what = next((text for part, text in _WHAT if part in reason), "what may be used")
        together = " by all of its users together" if match[2] == "Grp" else ""
        return f"the limit of {whose} on {what}{together} is reached ({reason})"
    return f"Slurm says {reason}"


def how_it_ended(job: Job, chain: bool, warned_s: float, lost: Sequence[NodeInfo] = ()) -> Ending:
    """What the end of a job means for its run; `lost`: those of its nodes that Slurm has lost."""
    name = f"Slurm job {job.id}"
    limit = f" of {duration(job.limit_s)}" if job.limit_s else ""
    if job.state in ("TIMEOUT", "DEADLINE") or _was_warned(job, warned_s):
        return Ending("time_slice" if chain else "timeout", f"the time limit{limit} of {name} is reached")
    if job.state == "CANCELLED":
        return Ending("cancelled", f"{name} was cancelled outside Muster (scancel)")
    if job.state == "PREEMPTED":
        return Ending("preempted", f"{name} was preempted by Slurm")
    if job.state in ("NODE_FAIL", "BOOT_FAIL"):
        which = _named(lost) if lost else f"a node of {name} ({job.nodes or 'unknown'})"
        return Ending("node_lost", f"{which} failed" + (f" under {name}" if lost else ""), _names(lost))
    if job.state == "OUT_OF_MEMORY":
        return Ending("host_oom", f"{name} used more memory than it was given, and Slurm ended it")
    return Ending("", f"{name} ended as {job.state}")


def how_it_was_requeued(job: Job, lost: Sequence[NodeInfo]) -> Ending:
    """A job that Slurm requeued is the end of an attempt; `lost`: those of its nodes that are lost."""
    if lost:
        why = f"{_named(lost)} failed, and Slurm put job {job.id} back into its queue"
        return Ending("node_lost", why, _names(lost))
    if job.failed_to_launch:
        return Ending("preempted", f"Slurm could not launch job {job.id} and put it back into its queue")
    return Ending("preempted", f"Slurm took the nodes of job {job.id} back and put it back into its queue")


def _names(nodes: Sequence[NodeInfo]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)


def _named(nodes: Sequence[NodeInfo]) -> str:
    """`node n2 (down*: Not responding)`."""
    said = (f"{node.name} ({node.state}{f': {node.reason}' if node.reason else ''})" for node in nodes)
    return f"node{'s' * (len(nodes) > 1)} {', '.join(said)}"


def node_state(node: NodeInfo) -> tuple[str, str]:
    """A node's state in the terms of Muster's clusters, and Slurm's own word for it."""
    state = node.state.lower().rstrip("*~#!%$@^-+")
    said = f"{node.state}: {node.reason}" if node.reason else node.state
    if node.state.endswith("*"):
        return "unusable", f"{state}, does not respond" + (f": {node.reason}" if node.reason else "")
    if state == "idle":
        return "idle", node.reason
    if state in ("mixed", "allocated", "completing"):
        return "running", said
    if state.startswith("power") or state in ("configuring", "reboot"):
        return "preparing", said
    return "unusable", said


def _was_warned(job: Job, warned_s: float) -> bool:
    """Whether it ended by itself after the signal before its limit, which may come a minute early."""
    ended_itself = job.state in ("COMPLETED", "FAILED")
    return ended_itself and job.limit_s is not None and job.used_s >= max(1.0, job.limit_s - warned_s - 60)


def duration(seconds: float) -> str:
    """Hours and minutes."""
    hours, minutes = divmod(int(seconds // 60), 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
