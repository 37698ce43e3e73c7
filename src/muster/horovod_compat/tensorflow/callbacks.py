"""Horovod's callbacks, for whichever Keras a script uses."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

import numpy as np

from .calls import broadcast_variables
from .group import GROUP


class Broadcast:
    """Gives every rank the root's variables after the first batch, when all of them exist."""

    model: Any

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank, self.broadcast_done = root_rank, False
        self._local = {id(variable) for variable in local_variables or ()}

    def set_model(self, model: Any) -> None:
        super().set_model(model)  # type: ignore[misc]
        if getattr(model, "jit_compile", False) is True and hasattr(model.optimizer, "_horovod"):
            # Gradients are exchanged by Python, which XLA cannot compile.
            model.jit_compile = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.broadcast_done:
            return
        optimizers = self.model.optimizer.variables
        found = [*self.model.variables, *(optimizers() if callable(optimizers) else optimizers)]
        once = {id(variable): variable for variable in found if id(variable) not in self._local}
        broadcast_variables([_plain(variable) for variable in once.values()], self.root_rank)
        self.broadcast_done = True


class MetricAverage:
    """Averages metrics over all ranks at the end of each epoch; callbacks that use them must come after it."""

    def __init__(self, device: str = "") -> None:
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if not logs:
            return
        names = sorted(logs)
        values = GROUP.reduce([np.array([float(logs[name]) for name in names])], 0, "metrics " + " ".join(names))[0]
        logs.update(zip(names, values.tolist()))


class Schedule:
    """Multiplies the initial learning rate, and corrects the momentum in the steps in which the rate changes."""

    model: Any
    params: Any

    def __init__(
        self,
        initial_lr: float,
        multiplier: Any,
        start_epoch: int = 0,
        end_epoch: Optional[int] = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is missing: the learning rate that is multiplied")
        self.initial_lr, self.start_epoch, self.end_epoch = initial_lr, start_epoch, end_epoch
        self.staircase, self.momentum_correction = staircase, momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.multiplier: Callable[[float], float] = (
            multiplier if callable(multiplier) else lambda epoch: multiplier ** (epoch - start_epoch)
        )
        self._momentum: Any = None
        self._epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise ValueError(f"{type(self).__name__} cannot know the steps of an epoch: give steps_per_epoch")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._epoch < self.start_epoch or (self.end_epoch is not None and self._epoch >= self.end_epoch):
            return
        if not self.staircase:
            assert self.steps_per_epoch
            self._adjust(self._epoch + batch / self.steps_per_epoch)
        elif batch == 0:
            self._adjust(self._epoch)

    def _adjust(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        old, new = _value(optimizer.learning_rate), self.initial_lr * self.multiplier(epoch)
        _assign(optimizer, "learning_rate", new)
        momentum = getattr(optimizer, "momentum", None)
        if self.momentum_correction and momentum is not None and hasattr(momentum, "assign") and old > 0:
            self._momentum = _value(momentum)
            momentum.assign(self._momentum * new / old)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._momentum:
            self.model.optimizer.momentum.assign(self._momentum)
        self._momentum = None

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if logs is not None:
            logs["lr"] = _value(self.model.optimizer.learning_rate)


class Warmup(Schedule):
    """Raises the learning rate from that of one rank to that of all."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            assert self.steps_per_epoch
            # A step ahead, so that the end of an epoch comes out even.
            reached = epoch + 1.0 / self.steps_per_epoch
            return (reached * (GROUP.size() - 1) / warmup_epochs + 1) / GROUP.size()

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.verbose and GROUP.rank() == 0 and epoch + 1 == self.end_epoch:
            rate = _value(self.model.optimizer.learning_rate)
            print(f"\nEpoch {epoch + 1}: the warm-up ends with a learning rate of {rate:g}.")


def _plain(variable: Any) -> Any:
    """The TensorFlow variable inside a Keras 3 variable."""
    return variable.value if type(variable).__module__.startswith("keras.") else variable


def _value(variable: Any) -> float:
    return float(variable.numpy() if hasattr(variable, "numpy") else variable)


def _assign(optimizer: Any, name: str, value: float) -> None:
    known = getattr(optimizer, name)
    if hasattr(known, "assign"):
        known.assign(value)
    else:
        setattr(optimizer, name, value)


def made(keras: Any) -> Tuple[Any, ...]:
    """The four callbacks for one Keras, in the order of this module."""
    names = {
        "BroadcastGlobalVariablesCallback": Broadcast,
        "MetricAverageCallback": MetricAverage,
        "LearningRateScheduleCallback": Schedule,
        "LearningRateWarmupCallback": Warmup,
    }
    base = keras.callbacks.Callback
    return tuple(type(name, (mixin, base), {"__doc__": mixin.__doc__}) for name, mixin in names.items())
