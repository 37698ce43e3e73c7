"""Checkpoints of named arrays, for TensorFlow, Keras, JAX and everything else whose state can be NumPy arrays."""

from __future__ import annotations

import json
import logging
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsFloat, SupportsIndex, TypeAlias

import numpy as np

from muster.training import integrity
from muster.training.folders import (
    CheckpointFailed,
    CheckpointFolder,
    InUse,
    NoGoodCheckpoint,
    best_of,
    candidates_in,
    check_which,
    checked_keep_last,
    checked_metric,
    checked_step,
    checkpoints_in,
    find_folders,
    newest_about,
    nothing_in,
    unusable,
)
from muster.training.integrity import ARRAYS, About

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

Plain: TypeAlias = "bool | int | float | str | Sequence[Plain] | Mapping[str, Plain] | None"
"""A value that JSON can hold."""

_PROGRESS = "__progress__"
_MOST_FAILURES = 3


class ArrayCheckpoint(NamedTuple):
    """The state that was saved after a step."""

    step: int
    arrays: dict[str, NDArray[Any]]
    progress: dict[str, Plain]


class ArrayCheckpointer:
    """Saves named arrays and the script's own progress, where all ranks hold the same state: rank 0 alone writes.

    The folder `step_N` appears when all of it is on disk, and is verified before it is loaded. Under Muster it is the
    run's own, so each checkpoint is published, and `load` finds those of the last attempt; elsewhere give one that all
    ranks see. `resume_from` is a checkpoint of another training, or a folder of them, for a start without checkpoints
    of its own.

    A save that fails (a full disk) is logged, and older checkpoints stay; the third failure in a row raises.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        rank: int = 0,
        resume_from: str | Path | None = None,
        keep_last: int = 3,
    ) -> None:
        own, self._resume, self._resumes_own_run = find_folders(folder, resume_from)
        self._folder, self._leads, self._keep_last = CheckpointFolder(own), rank == 0, checked_keep_last(keep_last)
        self._best: tuple[float, int] | None = None
        self._failures = 0
        try:
            own.mkdir(parents=True, exist_ok=True)
            if self._leads:
                self._folder.hold()
                self._folder.claim()
        except (OSError, InUse) as error:
            raise CheckpointFailed(
                f"the checkpoint folder {own} cannot be used: {error}",
                "Give each training its own folder, or wait until the other has ended.",
            ) from error
        self._foreign = {step for step, _ in checkpoints_in(own)}
        """Checkpoints that this training has neither loaded nor written: not its own to remove."""

    def save(
        self,
        step: SupportsIndex,
        arrays: Mapping[str, NDArray[Any]],
        progress: Mapping[str, Plain] | None = None,
        *,
        metric: SupportsFloat | None = None,
    ) -> None:
        """Save the state after `step` steps, with progress that JSON can hold. Ranks other than 0 return at once.

        With a `metric`, the checkpoint with the largest one is kept as well as the last few.
        """
        if not self._leads:
            return
        step, metric = checked_step(step), checked_metric(metric)
        self._folder.check_held()
        if step in self._foreign:
            raise CheckpointFailed(
                f"{self._folder.path}/step_{step} is there already, and this training did not load it",
                "Call load() first to go on from it, or give another folder.",
            )
        best = (metric, step) if metric is not None and self._is_best(metric) else self._best
        given = {**_checked_arrays(arrays), _PROGRESS: _described(progress)}
        try:
            self._write(About(step, 1, metric, best), given)
        except OSError as error:
            self._failures += 1
            log.warning("the checkpoint of step %d was not written: %s", step, error)
            if self._failures >= _MOST_FAILURES:
                raise CheckpointFailed(
                    f"{self._failures} checkpoints in a row could not be written to {self._folder.path}: {error}",
                    "Free space there or give another folder; the older checkpoints are intact.",
                ) from error
            return
        self._failures, self._best = 0, best

    def load(self, which: str = "last") -> ArrayCheckpoint | None:
        """The newest good checkpoint (or the `best`), or None where there is none to load. Every rank calls it."""
        check_which(which)
        candidates = sorted(candidates_in(self._folder.path, self._resume, self._resumes_own_run), reverse=True)
        if self._resume is not None and not candidates:
            raise nothing_in(self._resume)
        if which == "best":
            candidates = best_of(candidates, newest_about(candidates))
        damaged = []
        for step, path in candidates:
            problem = integrity.find_damage(path)
            if problem is None:
                return self._read(path)
            log.warning("the checkpoint of step %d is damaged and passed over: %s", step, problem)
            damaged.append(f"step {step} ({problem})")
        if damaged:
            raise unusable(damaged)
        return None

    def close(self) -> None:
        """Release the folder for other trainings."""
        self._folder.release()

    def _is_best(self, metric: float) -> bool:
        return not math.isnan(metric) and (self._best is None or metric > self._best[0])

    def _write(self, about: About, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._folder.stage(about.step)
        staged = self._folder.staged(about.step)
        with (staged / ARRAYS).open("wb") as target:
            with zipfile.ZipFile(target, "w", allowZip64=True) as archive:
                # As `np.savez` does, whose own argument names an array could have.
                for name, array in arrays.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, array, allow_pickle=False)
            target.flush()
            os.fsync(target.fileno())
        integrity.write_list(staged, 0, about, {})
        if about.best and about.best[1] == about.step:
            (staged / "best").write_text("\n")
        self._folder.publish(about.step)
        self._folder.prune(about.step, self._keep_last, about.best and about.best[1], self._foreign)

    def _read(self, folder: Path) -> ArrayCheckpoint:
        if not (folder / ARRAYS).exists():
            raise NoGoodCheckpoint(
                f"{folder} holds no arrays: a Checkpointer of PyTorch wrote it",
                "Resume it with the script that made it.",
            )
        about, _ = integrity.read_list(folder)
        with np.load(folder / ARRAYS, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        progress = json.loads(arrays.pop(_PROGRESS).tobytes())
        own = folder.parent == self._folder.path
        # The best metric of another training does not count in this one.
        self._best = about.best if own or self._resumes_own_run else None
        if own:
            self._foreign = set()
        return ArrayCheckpoint(about.step, arrays, progress)


def _checked_arrays(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The values as NumPy arrays; TypeError for one that could not be loaded again."""
    if not isinstance(arrays, Mapping):
        raise TypeError(f"arrays ({type(arrays).__name__}) must be a mapping of names to NumPy arrays")
    found = {name: np.asanyarray(array) for name, array in arrays.items()}
    for name, array in found.items():
        if array.dtype.hasobject:
            raise TypeError(
                f"arrays[{name!r}] ({type(arrays[name]).__name__}) holds objects of Python; only numbers and texts of "
                "NumPy can be saved"
            )
    return found


def _described(progress: Mapping[str, Plain] | None) -> NDArray[Any]:
    try:
        return np.frombuffer(json.dumps(dict(progress or {})).encode(), np.uint8)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"the progress cannot be saved ({error}): it is a dict of numbers, texts, None, lists and dicts of them"
        ) from error
