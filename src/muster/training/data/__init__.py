"""Data for training, read in streams: shards split by rank and worker, well mixed, and exactly resumable.

Needs NumPy alone; PyTorch, TensorFlow, pyarrow and fsspec are imported where they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from muster.training.data.batches import numpy_batches, stacked
from muster.training.data.layouts.base import Sample
from muster.training.data.order import EpochOrder, Shuffle
from muster.training.data.source import Source, indexed_source, open_source
from muster.training.data.stream import Stream, StreamState
from muster.training.data.tensorflow import tf_dataset

if TYPE_CHECKING:
    from muster.training.data.pytorch import TorchLoader

__all__ = [
    "EpochOrder",
    "Sample",
    "Shuffle",
    "Source",
    "Stream",
    "StreamState",
    "TorchLoader",
    "indexed_source",
    "numpy_batches",
    "open_source",
    "stacked",
    "tf_dataset",
]


def __getattr__(name: str) -> Any:
    if name != "TorchLoader":
        raise AttributeError(f"module 'muster.training.data' has no attribute {name!r}")
    try:
        return importlib.import_module("muster.training.data.pytorch").TorchLoader
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError("TorchLoader needs PyTorch; install it with `pip install torch`") from error


def __dir__() -> list[str]:
    return [*globals(), *__all__]
