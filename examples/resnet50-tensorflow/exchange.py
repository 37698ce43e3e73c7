"""How the ranks communicate: MultiWorkerMirroredStrategy, Horovod, or a single rank."""

import json
import os
import pickle
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf

from muster.runtime.ranks import rank_info


class Ranks:
    """A single rank; subclasses add communication."""

    name, rank, size = "alone", 0, 1

    def scope(self) -> AbstractContextManager[Any]:
        """The scope in which to create variables."""
        return nullcontext()

    def run(self, step: Callable[..., Any], *args: Any) -> Any:
        """Call a function that may use `mean`, inside a `tf.function`."""
        return step(*args)

    def mean(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The means over all ranks, in one exchange."""
        return list(tensors)

    def sum(self, values: Any) -> Any:
        """The sum of an array over all ranks, outside of a step."""
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


class Mirrored(Ranks):
    """Workers of TF_CONFIG, each with one device."""

    name = "MultiWorkerMirroredStrategy"

    def __init__(self) -> None:
        # Must come before anything else of TensorFlow.
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy()
        self.rank = self._strategy.cluster_resolver.task_id
        self.size = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
        # Copied, so that the values are on this worker's device.
        self._sum = tf.function(lambda values: self.run(lambda own: self._reduce("sum", tf.identity(own)), values))

    def scope(self) -> AbstractContextManager[Any]:
        return self._strategy.scope()

    def run(self, step: Callable[..., Any], *args: Any) -> Any:
        return self._strategy.run(step, args)

    def mean(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return self._reduce("mean", list(tensors))

    def sum(self, values: Any) -> Any:
        return self._sum(tf.constant(values)).numpy()

    def _reduce(self, how: str, values: Any) -> Any:
        return tf.distribute.get_replica_context().all_reduce(how, values)


class Horovod(Ranks):
    """Ranks of mpirun."""

    name = "horovod"

    def __init__(self) -> None:
        import horovod.tensorflow as hvd

        hvd.init()
        self._hvd, self.rank, self.size = hvd, hvd.rank(), hvd.size()
        if gpus := tf.config.list_physical_devices("GPU"):
            tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")

    def mean(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return list(self._hvd.grouped_allreduce(list(tensors), op=self._hvd.Average, name="step"))

    def sum(self, values: Any) -> Any:
        return self._hvd.allreduce(tf.constant(values), op=self._hvd.Sum, name="sum").numpy()


def join(backend: str | None) -> Ranks:
    """Choose by what started this process, or by `--backend`."""
    workers = len(json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {}).get("worker", []))
    ranks = rank_info(os.environ)
    if backend == "mirrored" and not workers:
        raise SystemExit("--backend mirrored needs TF_CONFIG (`distribution: {type: tensorflow}`)")
    if backend == "horovod" and ranks.launcher != "mpi":
        raise SystemExit("--backend horovod needs ranks that mpirun started (`distribution: {type: mpi}`)")
    if workers > 1 and backend != "horovod":
        return Mirrored()
    if backend == "horovod" or ranks.launcher == "mpi":
        return Horovod()
    if ranks.size > 1:
        raise SystemExit("TensorFlow needs `distribution: {type: tensorflow}` or `{type: mpi}`, not that of PyTorch")
    return Ranks()
