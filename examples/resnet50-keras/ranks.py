"""Which Keras to use, and how its ranks communicate."""

import importlib
import importlib.util
import json
import os
import pickle
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from muster.runtime.ranks import rank_info


class Ranks:
    """A single rank, with Keras 3 on any backend; subclasses add communication."""

    rank, size = 0, 1

    def __init__(self) -> None:
        self.keras = importlib.import_module("keras")

    @property
    def name(self) -> str:
        backend = "tensorflow" if self.keras.__name__ == "tf_keras" else self.keras.backend.backend()
        return f"{self.keras.__name__} {self.keras.__version__} on {backend}, {type(self).__name__.lower()}"

    def scope(self) -> AbstractContextManager[Any]:
        """The scope in which to create the model."""
        return nullcontext()

    def optimizer(self, optimizer: Any) -> Any:
        """The optimizer, made to apply the mean of all ranks' gradients."""
        return optimizer

    def data(self, batches: Any) -> Any:
        """Batches of NumPy arrays in the form that `fit` takes."""
        return batches

    def sum(self, values: Any) -> Any:
        """The sum of an array over all ranks."""
        return np.asarray(values)

    def any(self, flag: bool) -> bool:
        return bool(self.sum(np.array([float(flag)]))[0] > 0)

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in rank order: each adds its own row to a table of zeros."""
        own = np.frombuffer(pickle.dumps(value), np.uint8)
        lengths = np.zeros(self.size)
        lengths[self.rank] = len(own)
        lengths = self.sum(lengths).astype(int)
        table = np.zeros((self.size, lengths.max()))
        table[self.rank, : len(own)] = own
        rows = self.sum(table).astype(np.uint8)
        return [pickle.loads(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True)]

    def level(self, model: Any) -> None:
        """Give every rank the mean of all ranks' running statistics."""
        if self.size > 1:
            for variable in model.non_trainable_variables:
                variable.assign(self.sum(variable.numpy()) / self.size)


class Mirrored(Ranks):
    """TensorFlow's workers (TF_CONFIG). Keras 3 cannot `fit` under its strategies, so this is tf_keras."""

    def __init__(self) -> None:
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        import tensorflow as tf

        self._tf, self._strategy = tf, tf.distribute.MultiWorkerMirroredStrategy()
        self.keras = importlib.import_module("tf_keras")
        self.rank = self._strategy.cluster_resolver.task_id
        self.size = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])

        def total(values: Any) -> Any:
            # Copied, so that the values are on this worker's device.
            return tf.distribute.get_replica_context().all_reduce("sum", tf.identity(values))

        self._sum = tf.function(lambda values: self._strategy.run(total, (values,)))

    def scope(self) -> AbstractContextManager[Any]:
        return self._strategy.scope()

    def data(self, batches: Any) -> Any:
        first = next(batches)

        def every() -> Any:
            yield first
            yield from batches

        specs = tuple(self._tf.TensorSpec((None, *part.shape[1:]), part.dtype) for part in first)
        dataset = self._tf.data.Dataset.from_generator(every, output_signature=specs).prefetch(2)
        return self._strategy.distribute_datasets_from_function(lambda _: dataset)

    def sum(self, values: Any) -> Any:
        return self._sum(self._tf.constant(values)).numpy()

    def level(self, model: Any) -> None:
        """Nothing to do: the strategy keeps them equal."""


class Horovod(Ranks):
    """Ranks of mpirun. Horovod itself supports only Keras 2, which is tf_keras; Muster's layer supports Keras 3."""

    def __init__(self) -> None:
        found = importlib.util.find_spec("horovod")
        if found is None:
            raise SystemExit(
                "mpirun started this, and Horovod is not here: `environment: horovod-compat`, for instance"
            )
        if "horovod_compat" not in (found.origin or ""):
            os.environ["TF_USE_LEGACY_KERAS"] = "1"
            sys.modules["keras"] = importlib.import_module("tf_keras")
        elif os.environ.setdefault("KERAS_BACKEND", "tensorflow") != "tensorflow":
            raise SystemExit(f"KERAS_BACKEND is {os.environ['KERAS_BACKEND']}; with Horovod it must be tensorflow")
        self.keras = importlib.import_module("keras")
        self._hvd, calls = importlib.import_module("horovod.keras"), importlib.import_module("horovod.tensorflow")
        self._hvd.init()
        self._calls, self.rank, self.size = calls, self._hvd.rank(), self._hvd.size()
        import tensorflow as tf

        self._constant = tf.constant
        if gpus := tf.config.list_physical_devices("GPU"):
            tf.config.set_visible_devices(gpus[self._hvd.local_rank() % len(gpus)], "GPU")

    def optimizer(self, optimizer: Any) -> Any:
        return self._hvd.DistributedOptimizer(optimizer)

    def sum(self, values: Any) -> Any:
        return self._calls.allreduce(self._constant(values), op=self._calls.Sum, name="sum").numpy()


class Torch(Ranks):
    """Ranks of torch.distributed, with Keras 3 on PyTorch."""

    def __init__(self) -> None:
        if os.environ.setdefault("KERAS_BACKEND", "torch") != "torch":
            raise SystemExit(f"KERAS_BACKEND is {os.environ['KERAS_BACKEND']}; with `type: pytorch` it must be torch")
        import torch

        from muster.training import join

        self._torch, self._world = torch, join()
        self.rank, self.size = self._world.rank, self._world.size
        super().__init__()

    def scope(self) -> AbstractContextManager[Any]:
        return self.keras.device(str(self._world.device))

    def optimizer(self, optimizer: Any) -> Any:
        mean = self._mean

        class OfAllRanks(type(optimizer)):
            def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
                return super().apply(mean(grads), trainable_variables)

        optimizer.__class__ = OfAllRanks
        return optimizer

    def sum(self, values: Any) -> Any:
        return self._world.sum(self._torch.as_tensor(np.array(values))).numpy()

    def _mean(self, gradients: list[Any]) -> list[Any]:
        """The means of all gradients, in one exchange."""
        together = self._torch.cat([gradient.flatten() for gradient in gradients])
        self._torch.distributed.all_reduce(together, group=self._world.group)
        parts = (together / self.size).split([gradient.numel() for gradient in gradients])
        return [part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True)]


def join() -> Ranks:
    """Choose by what started this process."""
    workers = json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {}).get("worker", [])
    if len(workers) > 1:
        return Mirrored()
    launched = rank_info(os.environ)
    if launched.size == 1:
        return Ranks()
    return Horovod() if launched.launcher == "mpi" else Torch()
