"""The folder of a training's checkpoints. Each appears and disappears by a rename, so none is ever seen in part."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import operator
import os
import re
import shutil
import weakref
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import SupportsFloat, SupportsIndex

from muster.errors import MusterError
from muster.training import integrity
from muster.training.integrity import About

log = logging.getLogger(__name__)

_NAME = re.compile(r"step_(\d+)")
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class CheckpointFailed(MusterError):
    """Checkpoints cannot be written any more."""


class NoGoodCheckpoint(MusterError):
    """There are checkpoints, but none can be used."""


class InUse(Exception):
    """Another training writes to the folder."""


_holders: weakref.WeakValueDictionary[Path, CheckpointFolder] = weakref.WeakValueDictionary()
"""The object of this process that writes to a folder: a lock keeps out only other processes."""


class CheckpointFolder:
    """Folders `step_N`, and hidden ones that are being written or removed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._close: weakref.finalize[[int], CheckpointFolder] | None = None

    def hold(self) -> None:
        """Take the folder over from any other object of this process, whose `check_held` then raises."""
        _holders[self.path.resolve()] = self

    def check_held(self) -> None:
        """Raise if another object has taken the folder: both would replace and remove each other's checkpoints."""
        if _holders.get(self.path.resolve(), self) is not self:
            raise CheckpointFailed(
                f"another checkpointer of this script, made later, writes to {self.path}",
                "Give each a folder of its own, or give all models and optimizers to one, as mappings by name.",
            )

    def claim(self) -> None:
        """Lock out other trainings until `release` or the end of this process, and undo what one left half done.

        The lock belongs to the process: if another of its objects is released, it is lost until the next claim.
        """
        if self._descriptor is None:
            self._descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._close = weakref.finalize(self, os.close, self._descriptor)
        try:
            # With `flock` data workers would inherit the lock, and those that outlive their training would keep it.
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise InUse("another training writes its checkpoints there") from None
            if error.errno not in _NO_LOCKS:
                raise
        self._restore()

    def release(self) -> None:
        if self._close is not None:
            self._close()
        self._descriptor = self._close = None

    def stage(self, step: int) -> None:
        """Make the folder to write a checkpoint in; only one is written at a time."""
        self.tidy()
        self.staged(step).mkdir(parents=True)

    def staged(self, step: int) -> Path:
        """The folder of a checkpoint until it is complete."""
        return self.path / f".step_{step}.tmp"

    def publish(self, step: int) -> None:
        """Make a complete checkpoint visible with one rename."""
        staged, final, replaced = self.staged(step), self._final(step), self.path / f".replaced_{step}.tmp"
        integrity.sync_folder(staged)
        if final.exists():
            final.rename(replaced)
        staged.rename(final)
        integrity.sync_folder(self.path)
        shutil.rmtree(replaced, ignore_errors=True)

    def prune(self, newest: int, keep_last: int, best: int | None, foreign: Collection[int] = ()) -> None:
        """Keep the last few up to the newest, the best, and those of another training.

        Its own checkpoints with larger numbers are damaged, or from before a restart at an earlier step.
        """
        steps = [step for step, _ in checkpoints_in(self.path) if step not in foreign]
        kept = {*[step for step in steps if step <= newest][:keep_last], best}
        for step in steps:
            if step not in kept:
                removed = self.path / f".removed_{step}.tmp"
                with contextlib.suppress(OSError):
                    self._final(step).rename(removed)
                shutil.rmtree(removed, ignore_errors=True)

    def tidy(self) -> None:
        """Remove what a killed training or a failed save left behind; never what belongs to another training."""
        self.claim()
        for unfinished in self.path.glob(".*_*.tmp"):
            shutil.rmtree(unfinished, ignore_errors=True)

    def _restore(self) -> None:
        """Give a checkpoint that was to be replaced its name back if the replacement never came."""
        for replaced in self.path.glob(".replaced_*.tmp"):
            final = self._final(int(replaced.name.removeprefix(".replaced_").removesuffix(".tmp")))
            if not final.exists():
                replaced.rename(final)

    def _final(self, step: int) -> Path:
        return self.path / f"step_{step}"


def checkpoints_in(folder: Path) -> list[tuple[int, Path]]:
    """Finished checkpoints by step, the newest first."""
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return sorted(found, reverse=True)


def candidates_in(folder: Path, resume: Path | None, resumes_own_run: bool) -> list[tuple[int, Path]]:
    """The checkpoints that a training could resume: its own, and those given to resume from."""
    found = checkpoints_in(folder)
    if resume is not None and (resumes_own_run or not found):
        about = read_about(resume)
        found += checkpoints_in(resume) if about is None else [(about.step, resume)]
    return found


def newest_about(candidates: Sequence[tuple[int, Path]]) -> About | None:
    """The description in the newest readable checkpoint."""
    return next((about for _, path in candidates if (about := read_about(path)) is not None), None)


def best_of(candidates: Sequence[tuple[int, Path]], newest: About | None) -> list[tuple[int, Path]]:
    """The best checkpoint so far, according to the newest readable one."""
    if newest is None:
        return list(candidates)
    if newest.best is None:
        return []
    step = newest.best[1]
    found = [item for item in candidates if item[0] == step]
    if not found:
        raise NoGoodCheckpoint(
            f"the best checkpoint (step {step}) is not here, though that of step {newest.step} knows of it",
            "Load the last, or start another training with `resume_from` where the best was kept (from a run of "
            f"Muster: muster download RUN checkpoints/step_{step}).",
        )
    return found


def find_folders(folder: str | Path | None, resume_from: str | Path | None) -> tuple[Path, Path | None, bool]:
    """Where to write, what to resume from, and whether that is an earlier attempt of this run, which has precedence."""
    if resume_from is not None and not Path(resume_from).is_dir():
        raise ValueError(f"resume_from={str(resume_from)!r}: there is no such folder")
    own = os.environ.get("MUSTER_CHECKPOINT_DIR")
    if own and folder is not None and os.environ.get("RANK", "0") == "0":
        log.warning("checkpoints go to the run's own folder; %s is not used (resume_from=… loads from it)", folder)
    given = own or folder
    if given is None:
        raise ValueError("outside Muster checkpoints need a folder: give folder=…, one that all ranks see")
    if earlier := os.environ.get("MUSTER_RESUME_DIR"):
        return Path(given), Path(earlier), True
    return Path(given), Path(resume_from) if resume_from else None, False


def nothing_in(folder: Path) -> NoGoodCheckpoint:
    """The error of a training that cannot resume from the given folder."""
    return NoGoodCheckpoint(
        f"no checkpoint can be used: {folder} is none, and holds none (damaged, or not made by this class)",
        "Give a folder step_N with all of its files, or the one that holds such folders.",
    )


def unusable(what: list[str]) -> NoGoodCheckpoint:
    return NoGoodCheckpoint(
        f"no checkpoint can be used: {'; '.join(what)}", "Move them away to start from the beginning."
    )


def check_which(which: str) -> None:
    """Raise ValueError unless it is `last` or `best`."""
    if which not in ("last", "best"):
        raise ValueError(f"which={which!r} is last or best; for one of another training give resume_from=FOLDER")


def checked_keep_last(keep_last: SupportsIndex) -> int:
    """How many checkpoints to keep; ValueError unless it is 1 or more."""
    if not isinstance(keep_last, SupportsIndex) or operator.index(keep_last) < 1:
        raise ValueError(f"keep_last={keep_last!r} must be a whole number, 1 or more")
    return operator.index(keep_last)


def checked_step(step: SupportsIndex) -> int:
    """A number of steps, after which a checkpoint is named."""
    try:
        found = operator.index(step)
    except TypeError:
        raise TypeError(f"step={step!r} ({type(step).__name__}) must be a whole number: int(…) makes it one") from None
    if found < 0:
        raise ValueError(f"step={found} must not be negative")
    return found


def checked_metric(metric: SupportsFloat | None) -> float | None:
    """A plain number, also from a tensor or a NumPy number."""
    try:
        return None if metric is None else float(metric)
    except (TypeError, ValueError):
        raise TypeError(f"metric={metric!r} ({type(metric).__name__}) must be a single number") from None


def read_about(folder: Path) -> About | None:
    """A checkpoint's description; None if it is damaged or missing."""
    try:
        return integrity.read_list(folder)[0]
    except (OSError, ValueError, KeyError, TypeError):
        return None
