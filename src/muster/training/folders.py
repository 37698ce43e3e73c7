"""Where a training keeps its checkpoints. Each gets its name, and loses it, by a rename: none is ever seen in part."""

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
    """There are checkpoints, and none that can be used."""


class InUse(Exception):
    """Another training writes there."""


_holders: weakref.WeakValueDictionary[Path, CheckpointFolder] = weakref.WeakValueDictionary()
"""The object of this process that writes to a folder: a lock keeps out other processes alone."""


class CheckpointFolder:
    """Folders `step_N`, and hidden ones on their way to such a name or from it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._close: weakref.finalize[[int], CheckpointFolder] | None = None

    def hold(self) -> None:
        """Take it over from whatever object of this process had it, which `check_held` tells that one."""
        _holders[self.path.resolve()] = self

    def check_held(self) -> None:
        """Two objects would replace and remove each other's checkpoints."""
        if _holders.get(self.path.resolve(), self) is not self:
            raise CheckpointFailed(
                f"another checkpointer of this script, made later, writes to {self.path}",
                "Give each a folder of its own, or give all models and optimizers to one, as mappings by name.",
            )

    def claim(self) -> None:
        """Keep other trainings out until `release` or the end of this process, and take back what one left behind.

        It is this process's. Another object of it that is released gives it up for all, until it is claimed again.
        """
        if self._descriptor is None:
            self._descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._close = weakref.finalize(self, os.close, self._descriptor)
        try:
            # With `flock` data workers would have it too, and those that outlive their training would keep it.
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
        """Make room for a checkpoint; only one is under way at a time."""
        self.tidy()
        self.staged(step).mkdir(parents=True)

    def staged(self, step: int) -> Path:
        """Where it is until all of it is there."""
        return self.path / f".step_{step}.tmp"

    def publish(self, step: int) -> None:
        """One rename makes it visible."""
        staged, final, replaced = self.staged(step), self._final(step), self.path / f".replaced_{step}.tmp"
        integrity.sync_folder(staged)
        if final.exists():
            final.rename(replaced)
        staged.rename(final)
        integrity.sync_folder(self.path)
        shutil.rmtree(replaced, ignore_errors=True)

    def prune(self, newest: int, keep_last: int, best: int | None, foreign: Collection[int] = ()) -> None:
        """Keep the last few up to the newest, the best, and what is another training's.

        Larger numbers of its own are damaged, or of a line that was left.
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
        """Remove what a training that was killed, or a save that failed, left behind: never what is another's."""
        self.claim()
        for unfinished in self.path.glob(".*_*.tmp"):
            shutil.rmtree(unfinished, ignore_errors=True)

    def _restore(self) -> None:
        """What was to be replaced gets its name again where the replacement never came."""
        for replaced in self.path.glob(".replaced_*.tmp"):
            final = self._final(int(replaced.name.removeprefix(".replaced_").removesuffix(".tmp")))
            if not final.exists():
                replaced.rename(final)

    def _final(self, step: int) -> Path:
        return self.path / f"step_{step}"


def checkpoints_in(folder: Path) -> list[tuple[int, Path]]:
    """Finished ones by step, the newest first."""
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return sorted(found, reverse=True)


def candidates_in(folder: Path, resume: Path | None, resumes_own_run: bool) -> list[tuple[int, Path]]:
    """What a training could go on from: its own checkpoints, and those that it resumes from."""
    found = checkpoints_in(folder)
    if resume is not None and (resumes_own_run or not found):
        about = read_about(resume)
        found += checkpoints_in(resume) if about is None else [(about.step, resume)]
    return found


def newest_about(candidates: Sequence[tuple[int, Path]]) -> About | None:
    """What the newest that can be read says of itself."""
    return next((about for _, path in candidates if (about := read_about(path)) is not None), None)


def best_of(candidates: Sequence[tuple[int, Path]], newest: About | None) -> list[tuple[int, Path]]:
    """The one that is the best so far, as the newest that can be read knows it."""
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
    """Where to write, what to resume from, and whether that is of an earlier attempt of this run, which goes first."""
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
    """Raised where a training is to go on from a folder, and cannot."""
    return NoGoodCheckpoint(
        f"no checkpoint can be used: {folder} is none, and holds none (damaged, or not made by this class)",
        "Give a folder step_N with all of its files, or the one that holds such folders.",
    )


def unusable(what: list[str]) -> NoGoodCheckpoint:
    return NoGoodCheckpoint(
        f"no checkpoint can be used: {'; '.join(what)}", "Move them away to start from the beginning."
    )


def check_which(which: str) -> None:
    """Which checkpoint is to be loaded."""
    if which not in ("last", "best"):
        raise ValueError(f"which={which!r} is last or best; for one of another training give resume_from=FOLDER")


def checked_keep_last(keep_last: SupportsIndex) -> int:
    """How many checkpoints are to be kept."""
    if not isinstance(keep_last, SupportsIndex) or operator.index(keep_last) < 1:
        raise ValueError(f"keep_last={keep_last!r} must be a whole number, 1 or more")
    return operator.index(keep_last)


def checked_step(step: SupportsIndex) -> int:
    """A number of steps, as a checkpoint is named after it."""
    try:
        found = operator.index(step)
    except TypeError:
        raise TypeError(f"step={step!r} ({type(step).__name__}) must be a whole number: int(…) makes it one") from None
    if found < 0:
        raise ValueError(f"step={found} must not be negative")
    return found


def checked_metric(metric: SupportsFloat | None) -> float | None:
    """A plain number, also from a tensor or a number of NumPy."""
    try:
        return None if metric is None else float(metric)
    except (TypeError, ValueError):
        raise TypeError(f"metric={metric!r} ({type(metric).__name__}) must be a single number") from None


def read_about(folder: Path) -> About | None:
    """What a checkpoint says of itself; None where that is damaged or missing."""
    try:
        return integrity.read_list(folder)[0]
    except (OSError, ValueError, KeyError, TypeError):
        return None
