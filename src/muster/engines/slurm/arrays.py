"""Many gangs with equal requests as one job array: its members, its name, and the attempt of each task."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from muster.engines.base import GangRequest
from muster.engines.slurm.names import job_name
from muster.engines.slurm.parsing import Job
from muster.host.files import write_file

MOST_TASKS = 1000
"""The maximum tasks of one array: Slurm's default (MaxArraySize)."""
_NAME = re.compile(r"((.+)\.(\d+)\+\d+-[0-9a-f]{8})@muster-([^-@]+)")


@dataclass(frozen=True)
class JobArray:
    """Attempts with the same number of several runs, in the order of their tasks."""

    runs: tuple[str, ...]
    attempt: int
    workspace: str
    folder: Path
    limit: int | None = None
    """At most so many tasks at a time."""
    script: str = field(default="", compare=False)

    @classmethod
    def of(cls, requests: Sequence[GangRequest], limit: int | None) -> JobArray:
        first = requests[0]
        workspace = first.id.partition("-")[0]
        runs = tuple(request.gang.run for request in requests)
        return cls(runs, first.gang.attempt, workspace, Path(first.gang.folder), limit)

    @property
    def stem(self) -> str:
        """The first run, how many more, and a digest of them: an array resubmitted for others has another name."""
        digest = hashlib.sha256("\n".join(self.runs).encode()).hexdigest()[:8]
        return f"{self.runs[0]}.{self.attempt}+{len(self.runs) - 1}-{digest}"

    @property
    def name(self) -> str:
        """Its name in Slurm's queue."""
        return f"{self.stem}@muster-{self.workspace}"

    @property
    def list_file(self) -> Path:
        """The attempts of the tasks, one run per line: tasks read it, and so does the next server."""
        return self.folder / f"{self.stem}.runs"

    def tasks(self, numbers: Iterable[int]) -> str:
        """The value of `sbatch --array`."""
        return ranges(numbers) + (f"%{self.limit}" if self.limit else "")

    def write(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(self.list_file, "".join(f"{run}\n" for run in self.runs).encode())


@dataclass(frozen=True)
class Task:
    """One gang's place in an array."""

    array: JobArray
    number: int


def alike(requests: Sequence[GangRequest], kind: Callable[[GangRequest], Hashable]) -> list[list[GangRequest]]:
    """Groups of equal requests, as many as an array takes."""
    kinds: dict[Hashable, list[GangRequest]] = {}
    for request in requests:
        kinds.setdefault(kind(request), []).append(request)
    return [some[at : at + MOST_TASKS] for some in kinds.values() for at in range(0, len(some), MOST_TASKS)]


class Lists:
    """The attempts of arrays' tasks, each list read once."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        """The folder of the lists, once it is known."""
        self._runs: dict[Path, list[str]] = {}
        self._gone: dict[str, Job] = {}
        """Tasks that were cancelled while they waited."""

    def with_cancelled(self, before: Iterable[Job], now: Sequence[Job]) -> list[Job]:
        """Slurm's jobs, and cancelled ones that waited in the list `before`: Slurm keeps no record of
        tasks that are cancelled while they wait."""
        listed = {job.id for job in now}
        gone = {job.id: job for job in before if "_" in job.id and job.waits and job.id not in listed}
        self._gone |= {task: replace(job, state="CANCELLED", reason="") for task, job in gone.items()}
        self._gone = {task: job for task, job in self._gone.items() if task not in listed}
        return [*now, *self._gone.values()]

    def forget(self, task: str) -> None:
        """Nobody asks after it any more."""
        self._gone.pop(task, None)

    def named(self, job: Job) -> Job:
        """A task of an array as if it were a job of its own, with the name of its attempt; others unchanged."""
        match = _NAME.fullmatch(job.name)
        number = job.id.partition("_")[2]
        if match is None or not number.isdigit() or self.folder is None:
            return job
        runs = self._read(self.folder / f"{match[1]}.runs")
        if int(number) >= len(runs):
            # Of another workspace, or removed by hand.
            return job
        return replace(job, name=job_name(f"{match[4]}-{runs[int(number)]}.{match[3]}"))

    def _read(self, path: Path) -> list[str]:
        if path not in self._runs:
            try:
                self._runs[path] = path.read_text().split()
            except OSError:
                return []
        return self._runs[path]


def ranges(numbers: Iterable[int]) -> str:
    """`0-3,7`, as sbatch reads it."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
