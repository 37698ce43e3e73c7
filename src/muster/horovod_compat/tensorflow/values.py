"""The functions of horovod.keras and horovod.tensorflow.keras: operations on values, and `load_model`."""

from __future__ import annotations

from typing import Any, Callable, Optional

import tensorflow as tf

from ..reduction import Average, chosen
from . import calls
from .compression import Compression
from .optimizer import DistributedOptimizer


def allreduce(
    value: Any,
    name: Optional[str] = None,
    average: Optional[bool] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Optional[int] = None,
    compression: Any = Compression.none,
) -> Any:
    given = tf.convert_to_tensor(value)
    return calls.reduce_all([given], compression, chosen(op, average), prescale_factor, postscale_factor, name)[
        0
    ].numpy()


def allgather(value: Any, name: Optional[str] = None) -> Any:
    return calls.allgather(tf.convert_to_tensor(value), name).numpy()


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
    return calls.broadcast(tf.convert_to_tensor(value), root_rank, name).numpy()


def reducescatter(value: Any, name: Optional[str] = None, op: int = Average) -> Any:
    return calls.reducescatter(tf.convert_to_tensor(value), op=op, name=name).numpy()


def loader(keras: Any) -> Callable[..., Any]:
    def load_model(
        filepath: Any,
        custom_optimizers: Any = None,
        custom_objects: Any = None,
        compression: Any = Compression.none,
        legacy_opts: bool = False,
    ) -> Any:
        """Load a saved model and make its optimizer distributed."""
        known = {kind.__name__: kind for kind in custom_optimizers or ()}
        model = keras.models.load_model(filepath, custom_objects={**known, **(custom_objects or {})})
        DistributedOptimizer(model.optimizer, compression=compression)
        return model

    return load_model
