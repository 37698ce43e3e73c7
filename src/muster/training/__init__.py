"""What most training scripts need: ranks, data, exact resume, throughput, large batches.

Nothing here owns the training loop; each name is useful without the others. Most need torch and are imported when they
are first used; `ArrayCheckpointer`, `Throughput`, `learning_rate`, `batch_size` and `muster.training.data` do
not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "LAMB": "lamb",
    "LARS": "lars",
    "Advice": "noise",
    "ArrayCheckpointer": "arrays",
    "CheckpointFailed": "folders",
    "Checkpointer": "checkpoint",
    "NoGoodCheckpoint": "folders",
    "NoiseScale": "noise",
    "ResumableSampler": "sampling",
    "Throughput": "throughput",
    "World": "world",
    "advise": "noise",
    "batch_size": "schedule",
    "join": "world",
    "learning_rate": "schedule",
}

__all__ = [
    "LAMB",
    "LARS",
    "Advice",
    "ArrayCheckpointer",
    "CheckpointFailed",
    "Checkpointer",
    "NoGoodCheckpoint",
    "NoiseScale",
    "ResumableSampler",
    "Throughput",
    "World",
    "advise",
    "batch_size",
    "join",
    "learning_rate",
]

if TYPE_CHECKING:
    from muster.training.arrays import ArrayCheckpointer
    from muster.training.checkpoint import Checkpointer
    from muster.training.folders import CheckpointFailed, NoGoodCheckpoint
    from muster.training.lamb import LAMB
    from muster.training.lars import LARS
    from muster.training.noise import Advice, NoiseScale, advise
    from muster.training.sampling import ResumableSampler
    from muster.training.schedule import batch_size, learning_rate
    from muster.training.throughput import Throughput
    from muster.training.world import World, join


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'muster.training' has no attribute {name!r}")
    try:
        found = getattr(importlib.import_module(f"muster.training.{home}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"muster.training.{name} needs PyTorch; install it with `pip install torch`") from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *__all__]
