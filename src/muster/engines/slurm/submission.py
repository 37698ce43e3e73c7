"""Submits scripts to Slurm and cancels jobs, in a separate thread: a busy controller delays nobody else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.engines.slurm.arrays import Task
from muster.engines.slurm.commands import Busy, Commands, Later, Refused

log = logging.getLogger("muster.server")

_LEAVE_S = 10.0
_CLOSE_S = 2.0
"""The same at shutdown: its agents were asked to leave before."""
_CLOSE_PATIENCE_S = 8.0
_FIRST_WAIT_S = 1.0
_MOST_WAIT_S = 30.0
_NO_ARRAY = "Invalid job array specification"


@dataclass
class _Wanted:
    script: str
    """For a separate job."""
    mark: Path
    task: Task | None = None
    """It is submitted with others."""
    reason: str = "is being handed to Slurm"
    unsure: bool = False
    """An earlier call may have reached Slurm: look before calling again."""
    not_before: float = 0.0
    wait_s: float = _FIRST_WAIT_S


class Submitter:
    """Pending submissions and cancellations; its thread ends when there are none."""

    def __init__(self, commands: Commands, find_jobs: Callable[[Collection[str]], Mapping[str, str]]) -> None:
        """`find_jobs` looks for the jobs of allocations in Slurm's queue."""
        self._commands = commands
        self._find_jobs = find_jobs
        self._changed = threading.Condition()
        self._wanted: dict[str, _Wanted] = {}
        self._refused: dict[str, str] = {}
        self._sent: dict[str, _Wanted] = {}
        """Submitted, and not yet seen in Slurm's list."""
        self._cancels: dict[str, float] = {}
        """Job ids, and when they are cancelled if they still exist."""
        self._most: dict[str, int] = {}
        """How many tasks the site last accepted at once, by the array's name."""
        self._thread: threading.Thread | None = None
        self._closing = False
        self._looked = False

    def put(self, allocation_id: str, script: str, mark: Path, task: Task | None = None) -> None:
        self.put_all({allocation_id: (script, mark, task)})

    def put_all(self, items: Mapping[str, tuple[str, Path, Task | None]]) -> None:
        """Tasks of one array are submitted together."""
        with self._changed:
            for name, item in items.items():
                if not self.has(name):
                    # An earlier life of the server may have got as far as sbatch.
                    self._wanted[name] = _Wanted(*item, unsure=not self._looked)
            self._wake()

    def has(self, allocation_id: str) -> bool:
        """Whether something is being submitted, or was and has not appeared in Slurm's list."""
        with self._changed:
            return allocation_id in self._wanted or allocation_id in self._sent

    def refuse(self, allocation_id: str, why: str) -> None:
        with self._changed:
            self._refused[allocation_id] = why

    def drop(self, allocation_id: str) -> None:
        with self._changed:
            self._wanted.pop(allocation_id, None)
            self._refused.pop(allocation_id, None)
            self._sent.pop(allocation_id, None)

    def cancel(self, job_id: str, at_once: bool) -> None:
        with self._changed:
            if not self._closing:
                self._cancels[job_id] = time.monotonic() + (0.0 if at_once else _LEAVE_S)
                self._wake()
                return
        # The thread may have ended, and nobody would do it later.
        self._end(job_id)

    def is_sent(self, allocation_id: str) -> bool:
        """Whether something was submitted and has not appeared in Slurm's list since."""
        with self._changed:
            return allocation_id in self._sent

    def again(self, allocation_id: str) -> None:
        """Slurm accepted it, and does not have it: a crashed controller forgets what it had not saved."""
        with self._changed:
            item = self._sent.pop(allocation_id, None)
            if item is not None:
                # Slurm is searched once more before it is submitted.
                self._wanted[allocation_id] = _Wanted(item.script, item.mark, item.task, unsure=True)
                self._wake()

    def refusal(self, allocation_id: str) -> str:
        with self._changed:
            return self._refused.get(allocation_id, "")

    def waiting(self, allocation_id: str) -> str | None:
        """Why something is not in Slurm's queue yet; None when it is not being submitted."""
        with self._changed:
            if allocation_id in self._wanted:
                return self._wanted[allocation_id].reason
            return "is in the queue of Slurm" if allocation_id in self._sent else None

    def done(self, allocation_id: str, job_id: str, mark: Path) -> None:
        """The job is in Slurm's list."""
        with self._changed:
            self._sent.pop(allocation_id, None)
        if not mark.exists():
            _write(mark, job_id)

    def close(self) -> None:
        """Submit nothing more; cancellations are finished, because nobody would remember them."""
        with self._changed:
            self._closing = True
            soon = time.monotonic() + _CLOSE_S
            self._cancels = {job: min(at, soon) for job, at in self._cancels.items()}
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(_CLOSE_PATIENCE_S)

    def _wake(self) -> None:
        if self._thread is None and not self._closing:
            self._thread = threading.Thread(target=self._work, name="slurm", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                if self._closing:
                    # The next server submits what is still wanted.
                    self._wanted.clear()
                if not (self._wanted or self._cancels):
                    self._thread = None
                    return
                now = time.monotonic()
                due = [(name, item) for name, item in self._wanted.items() if item.not_before <= now]
                ending = [job for job, at in self._cancels.items() if at <= now]
                if not due and not ending:
                    next_at = min([*(item.not_before for item in self._wanted.values()), *self._cancels.values()])
                    self._changed.wait(max(0.01, next_at - now))
                    continue
            for job in ending:
                self._end(job)
            for together in self._together(due):
                self._submit(together)

    def _together(self, due: Sequence[tuple[str, _Wanted]]) -> list[dict[str, _Wanted]]:
        """What is submitted with one call each: tasks of an array, as many as the site accepts, and separate jobs."""
        groups: dict[str, dict[str, _Wanted]] = {}
        for name, item in due:
            array = item.task.array.name if item.task else ""
            groups.setdefault(array or name, {})[name] = item
        found = []
        for key, group in groups.items():
            names = list(group)
            most = self._most.get(key, len(names))
            found += [{name: group[name] for name in names[at : at + most]} for at in range(0, len(names), most)]
        return found

    def _end(self, job: str) -> None:
        try:
            self._commands.cancel(job)
        except (Busy, Later) as error:
            log.warning("job %s was not cancelled, it is tried again: %s", job, error)
            with self._changed:
                self._cancels[job] = time.monotonic() + _FIRST_WAIT_S
            return
        except Refused as error:
            log.warning("Slurm does not cancel job %s: %s", job, error)
        with self._changed:
            self._cancels.pop(job, None)

    def _submit(self, together: Mapping[str, _Wanted]) -> None:
        """One job, or tasks of one array."""
        new: Mapping[str, _Wanted] = together
        try:
            known: Mapping[str, str] = {}
            if any(item.unsure for item in together.values()):
                known = self._find_jobs(together.keys())
            self._looked = True
            new = {name: item for name, item in together.items() if name not in known}
            for item in together.values():
                item.unsure = True
            given = self._hand_over(new) if new else {}
        except (Busy, Later) as error:
            self._hold(new, error)
            return
        except Refused as error:
            self._refuse(new, error)
            return
        for name, job in {**known, **given}.items():
            self._accepted(name, together[name], job)

    def _hand_over(self, new: Mapping[str, _Wanted]) -> dict[str, str]:
        """Submit; returns the jobs' ids."""
        (name, first), *_ = new.items()
        if first.task is None:
            return {name: self._commands.submit(first.script)}
        array = first.task.array
        numbers = {name: item.task.number for name, item in new.items() if item.task}
        job = self._commands.submit(array.script, array.tasks(numbers.values()))
        if array.name in self._most:
            self._most[array.name] *= 2
        return {name: f"{job}_{number}" for name, number in numbers.items()}

    def _hold(self, new: Mapping[str, _Wanted], error: Busy | Later) -> None:
        """Retry later; of an array that is too large for the site now, half at a time."""
        held = isinstance(error, Later)
        with self._changed:
            items = list(new.values())
            task = items[0].task
            if held and task is not None:
                self._most[task.array.name] = max(1, len(items) // 2)
                # Where not even one is accepted, the others would not be either.
                items = [item for item in self._wanted.values() if item.task and item.task.array is task.array]
            for item in items:
                item.reason = f"{'Slurm takes no further job now' if held else 'Slurm does not answer'}: {error}"
                item.unsure = not held
                if held and len(new) > 1:
                    continue
                item.not_before = time.monotonic() + item.wait_s
                item.wait_s = min(item.wait_s * 2, _MOST_WAIT_S)

    def _refuse(self, new: Mapping[str, _Wanted], error: Refused) -> None:
        """Slurm will never accept it; where it takes no array, or none so large, each becomes a separate job."""
        with self._changed:
            for name, item in new.items():
                if item.task is not None and _NO_ARRAY in str(error):
                    item.task, item.unsure = None, False
                else:
                    self._wanted.pop(name, None)
                    self._refused[name] = f"Slurm refuses the job: {error}"

    def _accepted(self, name: str, item: _Wanted, job: str) -> None:
        with self._changed:
            unwanted = name not in self._wanted
            self._wanted.pop(name, None)
            if not unwanted:
                self._sent[name] = item
        if unwanted:
            # It is not wanted any more: it was cancelled while being submitted.
            self.cancel(job, at_once=True)
            return
        log.info("%s is Slurm job %s", name, job)
        _write(item.mark, job)


def _write(mark: Path, job_id: str) -> None:
    try:
        mark.write_text(job_id)
    except OSError as error:
        log.warning("%s cannot be written: %s", mark, error)
