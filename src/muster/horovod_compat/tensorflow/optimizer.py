"""Keras optimizers, of version 2 or 3, that apply the gradients of all ranks."""

from __future__ import annotations

from typing import Any, List

import tensorflow as tf

from ..reduction import Average, Sum
from ..refusals import refuse
from .compression import Compression
from .tape import check_options, reduced_gradients


def DistributedOptimizer(
    optimizer: Any,
    name: Any = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: object = None,
    scale_local_gradients: bool = True,
    use_locking: bool = False,
) -> Any:
    """The same optimizer, given a new class that applies the gradients of all ranks."""
    check_options(op, gradient_predivide_factor, process_set)
    if op not in (Average, Sum):
        raise ValueError("an optimizer of Keras takes op=hvd.Average and op=hvd.Sum")
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step={backward_passes_per_step}: it must be above zero")
    kind = type(optimizer)
    if not hasattr(optimizer, "get_config"):
        refuse(f"DistributedOptimizer of {kind.__module__}.{kind.__name__}", "Optimizers are those of Keras.")
    mixin = _Keras3 if hasattr(optimizer, "apply") and hasattr(optimizer, "stateless_apply") else _Keras2
    # The same name and module, so that a model saved with it can be loaded without Horovod.
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    optimizer.__class__ = type(kind.__name__, (mixin, kind), names)
    options = (compression, op, gradient_predivide_factor, sparse_as_dense)
    optimizer._horovod = _Exchange(options, backward_passes_per_step, average_aggregated_gradients)
    return optimizer


class _Exchange:
    """Reduces gradients over all ranks, after the given number of backward passes."""

    def __init__(self, options: Any, passes: int, average: bool) -> None:
        self._options, self._passes, self._average = options, passes, average
        self._sums: List[Any] = []
        self._count: Any = None

    def apply(self, gradients: List[Any], variables: List[Any], apply: Any, build: Any) -> Any:
        """Call `apply` with the reduced gradients, in every step or every few steps."""
        if self._passes == 1:
            return apply(reduced_gradients(gradients, *self._options))
        if self._count is None:
            with tf.init_scope():
                build(variables)
                self._count = tf.Variable(0, trainable=False, dtype=tf.int64)
                self._sums = [tf.Variable(tf.zeros(tuple(v.shape), v.dtype), trainable=False) for v in variables]
        for total, gradient in zip(self._sums, gradients):
            if gradient is not None:
                total.assign_add(tf.convert_to_tensor(gradient))
        self._count.assign_add(1)
        return tf.cond(self._count % self._passes == 0, lambda: self._flush(apply), lambda: False)

    def _flush(self, apply: Any) -> Any:
        share = self._passes if self._average else 1
        apply(reduced_gradients([total / share for total in self._sums], *self._options))
        for total in self._sums:
            total.assign(tf.zeros_like(total))
        return True


class _Keras2:
    """For tf_keras: current optimizers and those of `optimizers.legacy`."""

    _horovod: _Exchange

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **options: Any) -> Any:
        gradients, variables = zip(*grads_and_vars)
        plain = super().apply_gradients  # type: ignore[misc]

        def apply(reduced: Any) -> Any:
            return plain(list(zip(reduced, variables)), *args, **options)

        return self._horovod.apply(list(gradients), list(variables), apply, self._make_slots)

    def _make_slots(self, variables: Any) -> None:
        # Optimizers of `optimizers.legacy` have no `build`.
        make = getattr(self, "build", None) or self._create_all_weights  # type: ignore[attr-defined]
        make(variables)


class _Keras3:
    """For Keras 3, whose `apply_gradients` calls `apply`."""

    _horovod: _Exchange

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        variables = list(trainable_variables if trainable_variables is not None else self._trainable_variables)  # type: ignore[attr-defined]
        plain = super().apply  # type: ignore[misc]
        build = super().build  # type: ignore[misc]

        def built(found: Any) -> None:
            if not self.built:  # type: ignore[attr-defined]
                build(found)

        return self._horovod.apply(list(grads), variables, lambda reduced: plain(reduced, trainable_variables), built)
