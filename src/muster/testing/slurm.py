"""Slurm's commands without Slurm: what `sbatch`, `squeue`, `sinfo`, `scancel` and `sacct` would answer."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from muster.engines.slurm.parsing import OVER, SQUEUE_FORMAT

_BUSY = "error: Socket timed out on send/recv operation"


@dataclass(frozen=True)
class FakeJob:
    id: str
    name: str
    script: str
    state: str = "PENDING"
    reason: str = "Priority"
    restarts: int = 0
    used: str = "0:00"
    limit: str = "1:00:00"
    nodes: str = ""
    partition: str = "batch"
    account: str = ""
    qos: str = ""
    starts: str = "N/A"


class FakeSlurm:
    """Hand its `run` to `Commands`; jobs move only when a test moves them."""

    def __init__(self, version: str = "22.05.8", nodes: Sequence[str] = ("n1", "n2"), gres: str = "(null)") -> None:
        self.version = version
        self.jobs: dict[str, FakeJob] = {}
        self.calls: Counter[str] = Counter()
        self.busy = 0
        """The controller is busy for so many of the next calls."""
        self.lost_answers = 0
        """So many of the next submissions arrive, but their answers are lost."""
        self.refusal = ""
        """sbatch's error, with which it refuses jobs."""
        self.test_refusals: dict[str, str] = {}
        """The errors of `sbatch --test-only`, by a part of the script that causes them."""
        self.node_states: dict[str, str] = {}
        """The states of nodes that are not idle."""
        self.accounts: Sequence[str] | None = None
        """The accounts that the user may charge; None: the site has none."""
        self.updates: list[tuple[str, ...]] = []
        """The arguments of each `scontrol update`."""
        self.pyxis = False
        """Whether srun supports containers."""
        self.mpi_plugins: Sequence[str] = ("pmi2",)
        """The plugins that `srun --mpi` lists."""
        self.accounting: dict[str, str] = {}
        """Final states by job name, for sacct; empty: accounting is off."""
        self.no_accounting = "Slurm accounting storage is disabled"
        """sacct's error where accounting is off."""
        self.usage = ""
        """The output of sacct for the usage of jobs."""
        self.site_lists: dict[str, str] = {}
        """The output of `scontrol show` and `sacctmgr show`, by what is shown."""
        self._nodes = nodes
        self._gres = gres
        self._lock = threading.Lock()

    def run(self, command: Sequence[str], stdin: str | None, deadline_s: float) -> tuple[int, str, str]:
        """Exit code, output and errors, as `run_command` returns them."""
        with self._lock:
            self.calls[command[0]] += 1
            if "--version" in command:
                return 0, f"slurm {self.version}\n", ""
            if self.busy:
                self.busy -= 1
                return 1, "", f"{command[0]}: {_BUSY}"
            answers = {"sbatch": self._sbatch, "squeue": self._squeue, "sinfo": self._sinfo, "scancel": self._scancel,
                       "sacct": self._sacct, "sacctmgr": self._sacctmgr, "scontrol": self._scontrol}  # fmt: skip
            if command[:2] == ("srun", "--help"):
                return 0, "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]\n" if self.pyxis else "", ""
            if command[0] == "srun":
                return 0, "", "".join(f"srun: {name}\n" for name in ("MPI types are...", "none", *self.mpi_plugins))
            return answers[command[0]](command, stdin or "")

    def move(self, job: str, **changes: object) -> None:
        """Change what Slurm reports about a job."""
        with self._lock:
            self.jobs[job] = replace(self.jobs[job], **changes)  # type: ignore[arg-type]

    def forget(self, job: str) -> None:
        """Slurm remembers an ended job for only a few minutes."""
        with self._lock:
            del self.jobs[job]

    def _sbatch(self, command: Sequence[str], stdin: str) -> tuple[int, str, str]:
        if "--test-only" in command:
            known = next((said for part, said in self.test_refusals.items() if part in stdin), "")
            return (1, "", f"allocation failure: {known}") if known else (0, "", "sbatch: Job 1 to start at once")
        if self.refusal:
            return 1, "", f"sbatch: error: Batch job submission failed: {self.refusal}"
        name = re.search(r"--job-name=(\S+)", stdin)
        job = FakeJob(str(len(self.jobs) + 1), name[1] if name else "?", stdin)
        array = re.search(r"--array=(\S+)", f"{' '.join(command)} {stdin}")
        for made in [replace(job, id=f"{job.id}_{task}") for task in _tasks(array[1])] if array else [job]:
            self.jobs[made.id] = made
        if self.lost_answers:
            self.lost_answers -= 1
            return 1, "", f"sbatch: {_BUSY}"
        return 0, f"{job.id}\n", ""

    def _squeue(self, command: Sequence[str], _stdin: str) -> tuple[int, str, str]:
        wanted = next((word.removeprefix("--name=") for word in command if word.startswith("--name=")), None)
        listed = [job for job in self.jobs.values() if wanted in (None, job.name)]
        return 0, "".join(_as_text(job) + "\n" for job in listed), ""

    def _sinfo(self, command: Sequence[str], _stdin: str) -> tuple[int, str, str]:
        if "%P" in command:
            return 0, "batch*\ngpu\n", ""
        listed = ((node, self.node_states.get(node, "idle")) for node in self._nodes)
        return 0, "".join(f"{node}|{state}|4|1000|1:00:00|{self._gres}|{node}|none\n" for node, state in listed), ""

    def _sacctmgr(self, command: Sequence[str], _stdin: str) -> tuple[int, str, str]:
        if "qos" in command and "qos" in self.site_lists:
            return 0, self.site_lists["qos"], ""
        if self.accounts is None:
            return 1, "", "You are not running a supported accounting_storage plugin"
        return 0, "".join(f"{name}\n" for name in self.accounts), ""

    def _scontrol(self, command: Sequence[str], _stdin: str) -> tuple[int, str, str]:
        if "show" in command:
            return 0, self.site_lists.get(command[-1], f"No {command[-1]} in the system\n"), ""
        self.updates.append(tuple(command[2:]))
        return 0, "", ""

    def _scancel(self, command: Sequence[str], _stdin: str) -> tuple[int, str, str]:
        job = self.jobs.get(command[-1])
        if job is None:
            return 1, "", f"scancel: error: Kill job error on job id {command[-1]}: Invalid job id specified"
        if job.state not in OVER:
            self.jobs[job.id] = replace(job, state="CANCELLED")
        return 0, "", ""

    def _sacct(self, command: Sequence[str], _stdin: str) -> tuple[int, str, str]:
        if self.usage and any(part.startswith("--jobs=") for part in command):
            return 0, self.usage, ""
        if not self.accounting:
            return 1, "", self.no_accounting
        wanted = next(part.removeprefix("--name=") for part in command if part.startswith("--name="))
        state = self.accounting.get(wanted)
        return 0, f"7|{state}|{wanted}\n" if state else "", ""


def _tasks(array: str) -> list[int]:
    """The numbers of `0-2,5%2`."""
    pairs = [part.partition("-") for part in array.partition("%")[0].split(",")]
    return [number for first, _, last in pairs for number in range(int(first), int(last or first) + 1)]


def _as_text(job: FakeJob) -> str:
    values = {"jobarrayid": job.id, "state": job.state, "reason": job.reason, "restartcnt": str(job.restarts),
              "timeused": job.used, "timelimit": job.limit, "nodelist": job.nodes, "name": job.name,
              "partition": job.partition, "account": job.account, "qos": job.qos, "starttime": job.starts}  # fmt: skip
    columns = (field.split(":") for field in SQUEUE_FORMAT.split(","))
    return "".join(values[name].ljust(int(width)) for name, width in columns)


__all__ = ["FakeJob", "FakeSlurm"]
