"""Hands scripts to Slurm and ends jobs, in a thread of its own: a controller that is busy holds up nobody else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from muster.engines.slurm.commands import Busy, Commands, Later, Refused

log = logging.getLogger("muster.server")

_LEAVE_S = 10.0
_CLOSE_S = 2.0
"""The same when the server leaves: its agents were asked to go before."""
_CLOSE_PATIENCE_S = 8.0
_FIRST_WAIT_S = 1.0
_MOST_WAIT_S = 30.0


@dataclass
class _Wanted:
    script: str
    mark: Path
    reason: str = "is being handed to Slurm"
    unsure: bool = False
    """Slurm may have heard an earlier call: look before asking again."""
    not_before: float = 0.0
    wait_s: float = _FIRST_WAIT_S


class Submitter:
    """What waits to be submitted or cancelled; its thread ends when nothing does."""

    def __init__(self, commands: Commands, find_job: Callable[[str], str | None]) -> None:
        self._commands = commands
        self._find_job = find_job
        self._changed = threading.Condition()
        self._wanted: dict[str, _Wanted] = {}
        self._refused: dict[str, str] = {}
        self._sent: dict[str, _Wanted] = {}
        """Submitted, and not yet seen in Slurm's list."""
        self._cancels: dict[str, float] = {}
        """Job ids, and when they are cancelled should they still be there."""
        self._thread: threading.Thread | None = None
        self._closing = False
        self._looked = False

    def put(self, allocation_id: str, script: str, mark: Path) -> None:
        with self._changed:
            if allocation_id in self._wanted or allocation_id in self._sent:
                return
            # An earlier life of the server may have got as far as sbatch.
            self._wanted[allocation_id] = _Wanted(script, mark, unsure=not self._looked)
            self._wake()

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
        # The thread may have gone, and nobody would come back to it.
        self._end(job_id)

    def is_sent(self, allocation_id: str) -> bool:
        """Whether something was submitted and not seen in Slurm's list since."""
        with self._changed:
            return allocation_id in self._sent

    def again(self, allocation_id: str) -> None:
        """Slurm took it, and does not have it: a controller that crashed forgets what it had not written down."""
        with self._changed:
            item = self._sent.pop(allocation_id, None)
            if item is not None:
                # It is looked for once more before it is submitted.
                self._wanted[allocation_id] = _Wanted(item.script, item.mark, unsure=True)
                self._wake()

    def refusal(self, allocation_id: str) -> str:
        with self._changed:
            return self._refused.get(allocation_id, "")

    def waiting(self, allocation_id: str) -> str | None:
        """Why something is not in Slurm's queue yet; None when nobody is at it."""
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
        """Submit nothing more; what is to be cancelled is, because nobody knows of it later."""
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
            for name, item in due:
                self._submit(name, item)

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

    def _submit(self, name: str, item: _Wanted) -> None:
        try:
            job = self._find_job(name) if item.unsure else None
            self._looked = True
            item.unsure = True
            job = job or self._commands.submit(item.script)
        except (Busy, Later) as error:
            held = isinstance(error, Later)
            with self._changed:
                item.reason = f"{'Slurm takes no further job now' if held else 'Slurm does not answer'}: {error}"
                item.unsure = not held
                item.not_before = time.monotonic() + item.wait_s
                item.wait_s = min(item.wait_s * 2, _MOST_WAIT_S)
            return
        except Refused as error:
            with self._changed:
                self._wanted.pop(name, None)
                self._refused[name] = f"Slurm refuses the job: {error}"
            return
        self._accepted(name, item, job)

    def _accepted(self, name: str, item: _Wanted, job: str) -> None:
        with self._changed:
            unwanted = name not in self._wanted
            self._wanted.pop(name, None)
            if not unwanted:
                self._sent[name] = item
        if unwanted:
            # Nobody waits for it any more: it was cancelled while it was on its way.
            self.cancel(job, at_once=True)
            return
        log.info("%s is Slurm job %s", name, job)
        _write(item.mark, job)


def _write(mark: Path, job_id: str) -> None:
    try:
        mark.write_text(job_id)
    except OSError as error:
        log.warning("%s cannot be written: %s", mark, error)
