"""A gradient tape that returns the gradients of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..reduction import Average
from ..refusals import check_process_set
from .calls import reduce_all
from .compression import Compression


@tf.autograph.experimental.do_not_convert
def reduced_gradients(
    gradients: Any, compression: Any, op: int, predivide: float = 1.0, sparse_as_dense: bool = False
) -> Any:
    """The gradients of all ranks, in one exchange; None stays None."""
    if sparse_as_dense:
        gradients = [tf.convert_to_tensor(one) if isinstance(one, tf.IndexedSlices) else one for one in gradients]
    before, after = (1 / predivide, predivide) if op == Average and predivide != 1.0 else (1.0, 1.0)
    return reduce_all(gradients, compression, op, before, after)


def check_options(op: int, predivide: float, process_set: object) -> None:
    check_process_set(process_set)
    if predivide != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor is for op=hvd.Average")


def DistributedGradientTape(
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: object = None,
    scale_local_gradients: bool = True,
) -> Any:
    """The same tape; its `gradient` returns the reduced gradients of all ranks."""
    check_options(op, gradient_predivide_factor, process_set)

    class Distributed(type(gradtape)):  # type: ignore[misc]
        def gradient(self, target: Any, sources: Any, output_gradients: Any = None, **options: Any) -> Any:
            found = super().gradient(target, sources, output_gradients, **options)
            flat = tf.nest.flatten(found)
            reduced = reduced_gradients(flat, compression, op, gradient_predivide_factor, sparse_as_dense)
            return tf.nest.pack_sequence_as(found, reduced)

    wrapped = Distributed.__new__(Distributed)
    wrapped.__dict__.update(gradtape.__dict__)
    return wrapped
