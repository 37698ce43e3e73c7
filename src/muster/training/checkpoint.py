"""Checkpoints that cost the training next to nothing and can be trusted when they are needed."""

from __future__ import annotations

import logging
import math
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NotRequired, SupportsFloat, SupportsIndex, TypedDict

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint import CheckpointException, FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.optim import Optimizer

from muster.training import integrity
from muster.training.folders import (
    CheckpointFailed,
    CheckpointFolder,
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
from muster.training.integrity import About
from muster.training.shards import Shards, silence_single_process_warning
from muster.training.state import (
    Models,
    Optimizers,
    PlainState,
    RandomState,
    Stage,
    Stateful,
    TrainingState,
    Value,
    check_loadable,
    kinds_in,
    named_values,
    random_state,
    set_random_state,
    snapshot,
)

log = logging.getLogger(__name__)

_PATIENCE_S = 60.0
"""How long the other ranks may take to start a save before a warning is logged."""
_EVERY_RANK = "Every rank must call save(), load() and close(), not rank 0 alone"


class RankState(TypedDict):
    """What each rank saves besides the tensors."""

    progress: dict[str, Any]
    plain: PlainState
    random: RandomState
    also: NotRequired[dict[str, Value]]
    """Absent from checkpoints of older versions."""


class Checkpointer:
    """Saves model, optimizer, random state and the script's own progress; every rank calls every method.

    `save` copies the state to main memory and returns; a thread writes it (torch.distributed.checkpoint), each rank
    its own shards, and hashes them. The folder appears under its name `step_N` only when all of it is on disk.
    Under Muster the folder is the run's own, so each checkpoint is published, and `load` finds those of the last
    attempt; elsewhere give one that all ranks see. `resume_from` is a checkpoint of another training, or a folder of
    them, for a start without checkpoints of its own. Only one training at a time can use a folder.

    Several models and optimizers are given as mappings, by names that stay the same; an average of the weights (EMA) is
    a model too. `also` takes other objects with a `state_dict`, such as schedulers and scalers.

    A save that fails (a full disk) is logged, and older checkpoints stay; the third failure in a row raises.
    """

    def __init__(
        self,
        model: Models,
        optimizer: Optimizers | None = None,
        folder: str | Path | None = None,
        *,
        also: Mapping[str, Stateful] | None = None,
        resume_from: str | Path | None = None,
        keep_last: int = 3,
        best: str = "max",
        asynchronous: bool = True,
        max_failures: int = 3,
    ) -> None:
        if best not in ("max", "min"):
            raise ValueError(
                f"best={best!r} must be max or min: whether the largest or the smallest metric is the best"
            )
        self._state = TrainingState(model, optimizer)
        self._also = _checked_also(also)
        self._stage = Stage()
        own, self._resume, self._resumes_own_run = find_folders(folder, resume_from)
        self._folder = CheckpointFolder(own)
        self._keep_last, self._larger_is_better = checked_keep_last(keep_last), best == "max"
        self._asynchronous, self._max_failures = asynchronous, max_failures
        self._rank, self._size, self._group = 0, 1, None
        if dist.is_initialized():
            self._rank, self._size = dist.get_rank(), dist.get_world_size()
            # A separate group: the writing thread must not interfere with the training's collectives.
            self._group = dist.new_group(backend="gloo")
        self._shards = Shards(self._rank, self._size, self._group)
        self._sharing, self._part, self._parts = self._find_parts()
        self._claim_folder()
        self._foreign = {step for steps in self._gather(self._steps_here()) for step in steps}
        """Checkpoints in the folder that this training has neither loaded nor written: not its own to remove."""
        self._best: tuple[float, int] | None = None
        self._checked: set[tuple[str, frozenset[type]]] = set()
        self._thread: threading.Thread | None = None
        self._problem: str | None = None
        self._failures = 0
        self._warned = False
        self._met = False
        """Whether all ranks have started the current save."""

    def save(
        self,
        step: SupportsIndex,
        progress: Mapping[str, Any] | None = None,
        *,
        metric: SupportsFloat | None = None,
    ) -> None:
        """Save the state after `step` steps with each rank's `progress`: plain values, and tensors (loaded to the CPU).

        With a `metric`, the checkpoint with the best one is kept as well as the last few.
        """
        step, metric = checked_step(step), checked_metric(metric)
        self.wait()
        self._check_own(step)
        given, plain = named_values(progress), self._state.plain()
        also = {name: item.state_dict() for name, item in self._also.items()}
        self._check_loadable(given, plain, also)
        own = RankState(progress=snapshot(given), plain=snapshot(plain), random=random_state(), also=snapshot(also))
        # Last, since on a GPU the writer waits for these copies, and so for the earlier ones as well.
        tensors = self._stage.copy(self._state.tensors(with_buffers=self._rank == 0))
        best = (metric, step) if metric is not None and self._is_best(metric) else self._best
        about = About(step, self._size, metric, best)
        self._met = self._size == 1
        self._thread = threading.Thread(target=self._write, args=(about, tensors, own), name="checkpoint", daemon=True)
        self._thread.start()
        if not self._asynchronous:
            self.wait()

    def load(self, which: str = "last") -> dict[str, Any] | None:
        """Load the newest good checkpoint (or the `best`); returns the progress given to it, or None."""
        check_which(which)
        self.wait()
        candidates = self._candidates()
        if which == "best":
            candidates = self._best_of(candidates)
        found = self._first_good(candidates)
        if found is None:
            return None
        reader = FileSystemReader(found)
        stored = reader.read_metadata().state_dict_metadata
        targets = self._state.make_room(stored)
        if unfit := sorted(name for name, target in targets.items() if _shape(stored, name) != target.shape):
            raise NoGoodCheckpoint(
                f"the checkpoint {found} lacks {unfit[0]} ({len(unfit)} such), or has it in another shape: it is of "
                "another model",
                "Resume with the arguments that it was made with, or give another checkpoint folder.",
            )
        silence_single_process_warning()
        dcp.load(targets, storage_reader=reader, process_group=self._group, no_dist=self._size == 1)
        return self._take_own(found)

    def wait(self) -> None:
        """Return when nothing is being written; raises CheckpointFailed after too many failures in a row."""
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)
            if self._thread.is_alive() and not self._met:
                log.warning("rank %d waits for other ranks to save as well. %s", self._rank, _EVERY_RANK)
            self._thread.join()
            self._thread = None
        if self._failures >= self._max_failures:
            raise self._failed(f"{self._failures} checkpoints in a row")

    def close(self) -> None:
        """Wait for the last save and release the folder; raises CheckpointFailed if that save failed."""
        try:
            self.wait()
            if self._problem is not None:
                raise self._failed("the last checkpoint")
        finally:
            self._folder.release()

    def _check_own(self, step: int) -> None:
        """Refuse to replace another training's checkpoint; warn once if the folder holds such checkpoints."""
        self._folder.check_held()
        if step in self._foreign:
            raise CheckpointFailed(
                f"{self._folder.path}/step_{step} is there already, and this training did not load it",
                "Call load() first to go on from it, or give another folder.",
            )
        if self._foreign and not self._warned and self._leads:
            log.warning(
                "%s holds checkpoints that this training did not load (the newest: step_%d). They are kept, and the "
                "next load() takes the newest: give each training its own folder",
                self._folder.path,
                max(self._foreign),
            )
        self._warned = True

    def _steps_here(self) -> list[int]:
        return [step for step, _ in checkpoints_in(self._folder.path)]

    def _failed(self, what: str) -> CheckpointFailed:
        if self._met:
            advice = "Free space there or give another folder; the older checkpoints are intact."
        else:
            advice = f"{_EVERY_RANK}; if all did, see how another rank ended. The older checkpoints are intact."
        return CheckpointFailed(f"{what} could not be written to {self._folder.path}: {self._problem}", advice)

    def _check_loadable(self, progress: Mapping[str, Any], plain: PlainState, also: Mapping[str, Value]) -> None:
        """Check each name only once for the same types in its value, since it takes time."""
        named = [(f"progress[{key!r}]", value) for key, value in progress.items()]
        named += [(f"the state of also[{key!r}]", value) for key, value in also.items()]
        for group in plain["groups"]:
            named += [(f"{key!r} of the optimizer", value) for key, value in group.items()]
        for name, value in named:
            known = (name, frozenset(kinds_in(value)))
            if known not in self._checked:
                check_loadable(name, value)
                self._checked.add(known)

    def _is_best(self, metric: float) -> bool:
        if math.isnan(metric):
            return False
        if self._best is None:
            return True
        return metric > self._best[0] if self._larger_is_better else metric < self._best[0]

    # Writing, in the thread

    def _write(self, about: About, tensors: dict[str, Tensor], own: RankState) -> None:
        try:
            self._problem = self._find_problem(about, tensors, own)
        except Exception as error:  # for example because a rank died during the exchange
            self._met = False
            self._problem = f"another rank did not take part, or has ended ({type(error).__name__}: {error})"
        if self._problem is None:
            self._failures, self._best = 0, about.best
            return
        self._failures += 1
        log.warning("the checkpoint of step %d was not written: %s", about.step, self._problem)

    def _find_problem(self, about: About, tensors: dict[str, Tensor], own: RankState) -> str | None:
        """After each step the ranks exchange their problems, so that none waits for a rank that failed."""
        numbers = self._gather(about.step)
        if len(set(numbers)) > 1:
            return f"the ranks save after different numbers of steps ({', '.join(map(str, numbers))})"
        self._met = True
        steps: tuple[Callable[[], None], ...] = (
            lambda: self._prepare(about.step),
            lambda: self._write_shards(about, tensors, own),
            lambda: self._publish(about),
            lambda: self._prune(about),
        )
        for act in steps:
            problem = self._agree(act)
            if problem is not None:
                problem = self._explained(problem, sum(tensor.nbytes for tensor in tensors.values()))
                self._agree(lambda: self._folder.tidy() if self._leads else None)
                return problem
        return None

    def _explained(self, problem: str, size: int) -> str:
        """Name a full disk as the cause: the errors of PyTorch's writer do not."""
        try:
            free = shutil.disk_usage(self._folder.path).free
        except OSError:
            return problem
        if free >= size or "No space left" in problem:
            return problem
        return f"No space left on device: {free / 1e6:.1f} MB are free, {size / 1e6:.1f} MB are needed ({problem})"

    def _prepare(self, step: int) -> None:
        self._stage.wait()
        if self._leads:
            self._folder.stage(step)

    def _write_shards(self, about: About, tensors: dict[str, Tensor], own: RankState) -> None:
        staged = self._folder.staged(about.step)
        hashes = self._shards.write(staged, tensors, again=all(self._gather(self._shards.repeats(tensors))))
        with (staged / f"rank_{self._rank:05d}.pt").open("wb") as target:
            torch.save(own, target)
            target.flush()
            os.fsync(target.fileno())
        integrity.write_list(staged, self._rank, about, hashes)

    def _publish(self, about: About) -> None:
        """Publish this node's part; Muster counts the checkpoint once all parts have arrived."""
        if not self._leads:
            return
        staged = self._folder.staged(about.step)
        if self._parts > 1:
            (staged / f"part_{self._part}_of_{self._parts}").write_text("\n")
        if about.best and about.best[1] == about.step:
            (staged / "best").write_text("\n")
        self._folder.publish(about.step)

    def _prune(self, about: About) -> None:
        if self._leads:
            self._folder.prune(about.step, self._keep_last, about.best and about.best[1], self._foreign)

    # What the ranks agree on

    @property
    def _leads(self) -> bool:
        """Whether this rank creates and renames folders on its node."""
        return self._rank == self._sharing[0]

    def _agree(self, act: Callable[[], Any]) -> str | None:
        """Call `act` on every rank; returns the first rank's problem, or None."""
        problem = None
        try:
            act()
        except CheckpointException as error:  # not an Exception; it holds the errors of all ranks
            problem = next(f"{type(cause).__name__}: {cause}" for cause, _ in error.failures.values())
        except Exception as error:  # every rank learns of it, and the caller reports it
            problem = f"{type(error).__name__}: {error}"
        return next((f"rank {rank}: {text}" for rank, text in enumerate(self._gather(problem)) if text), None)

    def _gather(self, value: Any) -> list[Any]:
        found = [value] * self._size
        if self._size > 1:
            dist.all_gather_object(found, value, group=self._group)
        return found

    def _find_parts(self) -> tuple[list[int], int, int]:
        """The ranks that share this rank's folder, the number of that folder, and how many folders there are."""
        node = int(os.environ.get("MUSTER_NODE_RANK", "0")) if "MUSTER_CHECKPOINT_DIR" in os.environ else 0
        nodes = self._gather(node)
        problem = self._agree(lambda: self._folder.path.mkdir(parents=True, exist_ok=True))
        if problem is not None:
            raise CheckpointFailed(f"the checkpoint folder {self._folder.path} cannot be made: {problem}")
        sharing = [rank for rank, other in enumerate(nodes) if other == node]
        self._check_shared(sharing[0])
        return sharing, sorted(set(nodes)).index(node), len(set(nodes))

    def _check_shared(self, leader: int) -> None:
        mark = self._folder.path / f".shared_by_{leader}.tmp"
        if self._rank == leader:
            mark.touch()
        seen = self._gather(None)  # a barrier
        seen = self._gather(mark.exists())
        if self._rank == leader:
            mark.unlink()
        if not all(seen):
            raise CheckpointFailed(
                f"rank {seen.index(False)} does not see what rank {leader} writes to {self._folder.path}",
                "Give a folder that all ranks share, or start the job with Muster, which needs none.",
            )

    def _claim_folder(self) -> None:
        """Claim the folder, since two trainings would remove each other's checkpoints."""
        self._folder.hold()
        problem = self._agree(lambda: self._folder.claim() if self._leads else None)
        if problem is not None:
            raise CheckpointFailed(
                f"the checkpoint folder {self._folder.path} cannot be used: {problem}",
                "Give each training its own folder, or wait until the other has ended.",
            )

    # Reading

    def _candidates(self) -> list[tuple[int, Path]]:
        """Checkpoints to load from, the newest first; the same on every rank."""
        found = candidates_in(self._folder.path, self._resume, self._resumes_own_run)
        known = [{step for step, _ in others} for others in self._gather(found)]
        candidates = sorted((item for item in found if all(item[0] in steps for steps in known)), reverse=True)
        if self._resume is not None and not candidates:
            raise nothing_in(self._resume)
        return candidates

    def _best_of(self, candidates: list[tuple[int, Path]]) -> list[tuple[int, Path]]:
        """The best checkpoint so far, according to the newest readable one; rank 0 decides."""
        return best_of(candidates, self._gather(newest_about(candidates))[0])

    def _first_good(self, candidates: list[tuple[int, Path]]) -> Path | None:
        damaged = []
        stripe = self._sharing.index(self._rank)
        for step, path in candidates:
            problems = self._gather(integrity.find_damage(path, stripe, len(self._sharing)))
            if not any(problems):
                return path
            said = next(problem for problem in problems if problem)
            log.warning("the checkpoint of step %d is damaged and passed over: %s", step, said)
            damaged.append(f"step {step} ({said})")
        if damaged:
            raise unusable(damaged)
        return None

    def _take_own(self, folder: Path) -> dict[str, Any]:
        about, _ = integrity.read_list(folder)
        same_world = about.world_size == self._size
        path = folder / f"rank_{self._rank if same_world else 0:05d}.pt"
        own: RankState = torch.load(path, map_location="cpu", weights_only=True)
        self._state.take_plain(own["plain"])
        self._take_also(own.get("also", {}), folder)
        if same_world:
            # With another number of ranks, the saved states would repeat numbers; the initial seeds are kept instead.
            set_random_state(own["random"])
        # The best metric of another training does not count in this one.
        of_this_run = self._resumes_own_run or folder.parent == self._folder.path
        self._best = about.best if of_this_run else None
        if folder.parent == self._folder.path:
            # This continues the training that owns the folder.
            self._foreign = set()
        return own["progress"]

    def _take_also(self, states: Mapping[str, Value], folder: Path) -> None:
        if missing := sorted(self._also.keys() - states.keys()):
            raise NoGoodCheckpoint(
                f"the checkpoint {folder} has no state of {missing[0]!r}, which is given as `also`",
                f"It has {', '.join(sorted(states)) or 'none at all'}: leave out what it lacks, or start again.",
            )
        for name, item in self._also.items():
            item.load_state_dict(states[name])


def _checked_also(also: Mapping[str, Stateful] | None) -> dict[str, Stateful]:
    if also is not None and not isinstance(also, Mapping):
        raise TypeError(f'also is {type(also).__name__}; give a dict, such as {{"scheduler": scheduler}}')
    found = dict(also or {})
    for name, item in found.items():
        if not (callable(getattr(item, "state_dict", None)) and callable(getattr(item, "load_state_dict", None))):
            raise TypeError(
                f"also[{name!r}] ({type(item).__name__}) has no state_dict and load_state_dict. Give schedulers, "
                "scalers and their like here, and plain values to save() as progress"
            )
        if isinstance(item, nn.Module | Optimizer):
            raise TypeError(
                f"also[{name!r}] is a model or an optimizer, of which each rank would write all. Give several as "
                'Checkpointer({"net": net, "ema": ema}, {"net": optimizer})'
            )
    return found


def _shape(stored: Mapping[str, TensorStorageMetadata], name: str) -> torch.Size | None:
    return stored[name].size if name in stored else None
