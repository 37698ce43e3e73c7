"""Parses the output of Slurm's commands. Pure; these text formats have not changed in ten years."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime

from muster.wire.queue_jobs import JobUsage

_FIELDS = (("jobarrayid", 24), ("state", 24), ("reason", 80), ("restartcnt", 12), ("timeused", 24), ("timelimit", 24),
           ("partition", 120), ("account", 80), ("qos", 80), ("starttime", 24), ("nodelist", 400),
           ("name", 260))  # fmt: skip
SQUEUE_FORMAT = ",".join(f"{name}:{width}" for name, width in _FIELDS)
"""A task of an array has its number with it: `12_3`."""
SINFO_FORMAT = "%N|%T|%c|%m|%l|%G|%o|%E"
SACCT_FORMAT = "JobID,State,JobName"
USAGE_FORMAT = "JobID,State,ExitCode,ElapsedRaw,TotalCPU,MaxRSS,ConsumedEnergyRaw"

OVER = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
     "TIMEOUT"}
)  # fmt: skip
WAITING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)


@dataclass(frozen=True)
class Job:
    """One job as Slurm reports it."""

    id: str
    name: str
    state: str
    reason: str = ""
    restarts: int = 0
    used_s: float = 0.0
    limit_s: float | None = None
    """None: no limit."""
    nodes: str = ""
    starts_at: float | None = None
    """When Slurm expects to start a waiting job, if known."""
    partition: str = ""
    account: str = ""
    qos: str = ""

    @property
    def is_over(self) -> bool:
        return self.state in OVER

    @property
    def waits(self) -> bool:
        return self.state in WAITING

    @property
    def failed_to_launch(self) -> bool:
        """Slurm could not start it, requeued it and holds it for a person."""
        return self.waits and self.reason.replace("_", " ").startswith("launch failed requeued held")


@dataclass(frozen=True)
class NodeInfo:
    """One node of a partition."""

    name: str
    state: str
    cpus: int
    memory_mb: int
    reason: str
    limit_s: float | None
    """The time limit of the partition; None: unlimited."""
    gpus: int = 0
    address: str = ""
    """The address of Slurm's own daemon on it."""

    @property
    def is_lost(self) -> bool:
        """Slurm has marked it down, or it does not respond."""
        state = self.state.lower()
        return state.startswith(("down", "fail")) or state.endswith("*")


def squeue_text(text: str) -> list[Job]:
    """The output of `squeue -h -O FORMAT`: columns of known width."""
    jobs = []
    for line in text.splitlines():
        values, at = {}, 0
        for name, width in _FIELDS:
            values[name] = line[at : at + width].strip()
            at += width
        if values["jobarrayid"] and values["state"]:
            jobs.append(
                Job(
                    values["jobarrayid"],
                    values["name"],
                    values["state"],
                    _none(values["reason"]),
                    int(values["restartcnt"]) if values["restartcnt"].isdigit() else 0,
                    limit_of(values["timeused"]) or 0.0,
                    limit_of(values["timelimit"]),
                    values["nodelist"],
                    _moment(values["starttime"]) if values["state"] in WAITING else None,
                    values["partition"],
                    _none(values["account"]),
                    _none(values["qos"]),
                )
            )
    return jobs


def sinfo_text(text: str) -> list[NodeInfo]:
    """The output of `sinfo -N -h -o FORMAT`, each node once."""
    found: dict[str, NodeInfo] = {}
    for line in text.splitlines():
        parts = line.split("|", 7)
        if len(parts) != 8:
            continue
        name, state, cpus, memory, limit, gres, address, reason = (part.strip() for part in parts)
        longest = limit_of(limit)
        if name in found:
            # It is in several partitions: the longest of their limits counts.
            before = found[name].limit_s
            longest = None if longest is None or before is None else max(longest, before)
            found[name] = replace(found[name], limit_s=longest)
            continue
        found[name] = NodeInfo(
            name,
            state,
            _leading_int(cpus),
            _leading_int(memory),
            _none(reason),
            longest,
            num_gpus(gres),
            address,
        )
    return list(found.values())


def sacct_text(text: str, name: str, task: str = "") -> Job | None:
    """The last job of a name, or this task of an array, in the output of `sacct -n -P -X -o FORMAT`."""
    last = None
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) == 3 and (parts[0] == task if task else parts[2] == name):
            last = Job(parts[0], name, parts[1].split(" ")[0])
    return last


def usage_text(text: str) -> dict[str, JobUsage]:
    """Usage of ended jobs, from the output of `sacct -n -P -o FORMAT`: a line for each job and each step."""
    rows = [parts for line in text.splitlines() if len(parts := line.split("|")) == 7]
    peaks: dict[str, int] = {}
    for identifier, *_, memory, _ in rows:
        job = identifier.partition(".")[0]
        peaks[job] = max(peaks.get(job, 0), _bytes(memory))
    return {
        job: JobUsage(
            state.split(" ")[0],
            exit_code,
            float(elapsed) if elapsed.isdigit() else 0.0,
            _cpu_s(cpu),
            peaks[job] or None,
            float(energy) if energy.isdigit() and energy != "0" else None,
        )
        for job, state, exit_code, elapsed, cpu, _, energy in rows
        if "." not in job and state.split(" ")[0] in OVER
    }


def num_gpus(gres: str) -> int:
    """The number of GPUs: `gpu:a100:4(S:0-1),gpu:2,nvme:1` has six."""
    without_sockets = re.sub(r"\([^)]*\)", "", gres)
    total = 0
    for item in without_sockets.split(","):
        parts = item.split(":")
        if parts[0] == "gpu":
            total += int(parts[-1]) if parts[-1].isdigit() else 1
    return total


def host_names(text: str) -> list[str]:
    """`n[1-3,07],m5` as single names."""
    found: list[str] = []
    for item in re.findall(r"(?:[^,\[\]]+|\[[^\]]*\])+", text):
        before, bracket, rest = item.partition("[")
        if not bracket:
            found.append(item)
            continue
        inside, _, after = rest.partition("]")
        for part in inside.split(","):
            first, _, last = part.partition("-")
            if first.isdigit() and (last or first).isdigit():
                numbers = range(int(first), int(last or first) + 1)
                found += [
                    f"{before}{number:0{len(first)}}{tail}" for number in numbers for tail in host_names(after) or [""]
                ]
    return found


def seconds_of(text: str) -> float:
    """`90` (minutes), `1:30:00`, `2-12`, `2-12:30`, `10:00` (minutes:seconds); ValueError for anything else."""
    days, dash, rest = text.strip().rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if any(part < 0 for part in parts) or len(parts) > 3:
        raise ValueError(text)
    # Without days, the first of one or two parts is minutes.
    from_hours = dash or len(parts) == 3
    hours, minutes, seconds = (*parts, 0, 0)[:3] if from_hours else (0, *parts, 0)[:3]
    return float((int(days) if dash else 0) * 86400 + hours * 3600 + minutes * 60 + seconds)


def limit_of(text: str) -> float | None:
    """A duration as Slurm prints it; None for an unlimited or unknown one."""
    try:
        return seconds_of(text)
    except ValueError:
        return None


def _moment(text: str) -> float | None:
    """A time stamp as Slurm prints it, in the time zone of the site."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _cpu_s(text: str) -> float | None:
    """`00:01.234`, `01:02:03`, `1-02:03:04`."""
    whole, _, fraction = text.partition(".")
    seconds = limit_of(whole)
    return None if seconds is None else seconds + (float(f"0.{fraction}") if fraction.isdigit() else 0.0)


def _bytes(text: str) -> int:
    """`1234K`, `1.5M`, `2048`."""
    match = re.fullmatch(r"([\d.]+)([KMGT]?)n?c?", text)
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2] or " ")) if match else 0


def version_of(text: str) -> tuple[int, int]:
    """`slurm 22.05.8` or `slurm-wlm 22.05.8`."""
    match = re.search(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _none(text: str) -> str:
    return "" if text.lower() in ("none", "(null)", "n/a") else text


def _leading_int(text: str) -> int:
    match = re.match(r"\d+", text)
    return int(match[0]) if match else 0
