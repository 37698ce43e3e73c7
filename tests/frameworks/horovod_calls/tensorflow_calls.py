"""Every call of horovod.tensorflow and horovod.keras that scripts use; rank 0 writes what came out to a file.

With `--compat` the calls are those of Muster's layer. Real Horovod and the layer must write the same figures.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if "--compat" in sys.argv:
    from muster.runtime.parts.horovod import HorovodCompat

    sys.meta_path.append(HorovodCompat)

import numpy as np
import tf_keras

sys.modules["keras"] = tf_keras  # what real Horovod imports

import horovod.keras  # noqa: E402
import horovod.tensorflow as hvd  # noqa: E402
import tensorflow as tf  # noqa: E402

FOUND = {}


def note(name, value):
    """Keep what all ranks have under this name."""
    FOUND[name] = hvd.allgather_object(plain(value))


def plain(value):
    if isinstance(value, tf.IndexedSlices):
        value = tf.convert_to_tensor(value)
    if isinstance(value, tf.Tensor | tf.Variable):
        value = value.numpy()
    if isinstance(value, np.ndarray | np.generic):
        return [str(value.dtype), value.astype(float).tolist()]
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value


def numbers(*shape, start=0.0):
    """Other ones on every rank."""
    count = int(np.prod(shape))
    found = (np.arange(count, dtype=np.float32).reshape(shape) + np.float32(start)) * np.float32(hvd.rank() + 1)
    return tf.constant(found / np.float32(7) - np.float32(hvd.rank()))


def reductions():
    # Horovod numbers the ranks of a node in their order; the layer leaves that to the launcher.
    assert 0 <= hvd.local_rank() < hvd.local_size()
    note("rank", [hvd.rank(), hvd.size(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()])
    for name in ("Average", "Sum", "Min", "Max", "Product", "Adasum"):
        note(f"allreduce {name}", hvd.allreduce(numbers(3, 2), op=getattr(hvd, name), name=f"r{name}"))
    note("allreduce default", hvd.allreduce(numbers(4), name="default"))
    note("allreduce integers", hvd.allreduce(tf.constant([5, 8, 3]) * (1 + hvd.rank()), op=hvd.Sum, name="whole"))
    note("allreduce half", hvd.allreduce(tf.cast(numbers(5), tf.float16), op=hvd.Sum, name="half"))
    note("allreduce fp16", hvd.allreduce(numbers(5), compression=hvd.Compression.fp16, name="fp16"))
    scaled = hvd.allreduce(numbers(3), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0, name="scaled")
    note("allreduce scaled", scaled)
    note("grouped_allreduce", hvd.grouped_allreduce([numbers(3), numbers(2, 2, start=4)], op=hvd.Sum))
    slices = tf.IndexedSlices(numbers(2, 2), tf.constant([0, 1 + hvd.rank()]), tf.constant([4, 2]))
    note("allreduce of slices", hvd.allreduce(slices))


def gatherings():
    root = hvd.size() - 1
    note("allgather", hvd.allgather(numbers(2, 3), name="gather"))
    note("allgather uneven", hvd.allgather(numbers(1 + hvd.rank(), 2), name="uneven"))
    note("grouped_allgather", hvd.grouped_allgather([numbers(2), numbers(1 + hvd.rank(), 2)]))
    note("broadcast", hvd.broadcast(numbers(3), root, name="b"))
    variables = [tf.Variable(numbers(3)), tf.Variable(numbers(2, 2))]
    hvd.broadcast_variables(variables, root_rank=root)
    note("broadcast_variables", variables)
    note("alltoall", hvd.alltoall(numbers(2 * hvd.size(), 2), name="all"))
    splits = [1 + (hvd.rank() + other) % 2 for other in range(hvd.size())]
    note("alltoall splits", hvd.alltoall(numbers(sum(splits)), splits=tf.constant(splits), name="splits"))
    note("reducescatter", hvd.reducescatter(numbers(5, 2), name="rs"))
    note("grouped_reducescatter", hvd.grouped_reducescatter([numbers(4), numbers(3, 2)], op=hvd.Sum))
    note("broadcast_object", hvd.broadcast_object({"rank": hvd.rank()}, root_rank=root))
    note("allgather_object", hvd.allgather_object(("of", hvd.rank())))
    note("in a graph", tf.function(lambda x: hvd.allreduce(x * 2, name="graph"))(numbers(3)))


def gradients():
    for name, call in {
        "allreduce": lambda x: hvd.allreduce(x, name="grad", op=hvd.Sum),
        "allgather": lambda x: hvd.allgather(x, name="gather_grad"),
        "broadcast": lambda x: hvd.broadcast(x, 0, name="broadcast_grad"),
        "alltoall": lambda x: hvd.alltoall(x, name="alltoall_grad"),
        "reducescatter": lambda x: hvd.reducescatter(x, op=hvd.Sum, name="scatter_grad"),
    }.items():
        x = tf.Variable(numbers(2 * hvd.size()))
        with tf.GradientTape() as tape:
            y = call(x)
            total = tf.reduce_sum(y * float(hvd.rank() + 1) * tf.range(1.0, float(y.shape[0]) + 1))
        note(f"gradient of {name}", tape.gradient(total, x))


def tapes():
    for name, options in {
        "tape": {},
        "tape Sum": {"op": hvd.Sum},
        "tape compressed": {"compression": hvd.Compression.fp16},
        "tape predivided": {"gradient_predivide_factor": 2.0, "sparse_as_dense": True},
        "tape sparse_as_dense": {"sparse_as_dense": True},
    }.items():
        weights, table = tf.Variable(tf.ones((3, 2))), tf.Variable(tf.ones((4, 3)))

        @tf.function
        def step(rows, weights=weights, table=table, options=options):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.nn.embedding_lookup(table, rows) @ weights * numbers(2, 2))
            found = hvd.DistributedGradientTape(tape, **options).gradient(loss, [weights, table])
            return [tf.convert_to_tensor(gradient) for gradient in found]

        note(name, step(tf.constant([hvd.rank(), 2])))


def model():
    tf_keras.utils.set_random_seed(hvd.rank())
    layers = [tf_keras.Input((4,)), tf_keras.layers.Dense(8, activation="tanh"), tf_keras.layers.Dense(1)]
    return tf_keras.Sequential(layers)


def fitted(make, callbacks=(), **options):
    network = model()
    optimizer = horovod.keras.DistributedOptimizer(make(), **options)
    network.compile(optimizer=optimizer, loss="mse")
    x = numbers(16, 4)
    every = [horovod.keras.callbacks.BroadcastGlobalVariablesCallback(0), *callbacks]
    history = network.fit(x, tf.reduce_sum(x, 1), batch_size=4, epochs=3, shuffle=False, callbacks=every, verbose=0)
    return [{name: [float(v) for v in values] for name, values in history.history.items()}, network.get_weights()]


def fits():
    legacy = tf_keras.optimizers.legacy
    note("fit SGD", fitted(lambda: legacy.SGD(0.01, momentum=0.9)))
    note("fit Adam", fitted(lambda: legacy.Adam(0.01)))
    averaged = [horovod.keras.callbacks.MetricAverageCallback()]
    note("fit, metrics averaged", fitted(lambda: legacy.SGD(0.01), averaged))
    warmup = [horovod.keras.callbacks.LearningRateWarmupCallback(initial_lr=0.02, warmup_epochs=2)]
    note("fit, warm-up", fitted(lambda: legacy.SGD(0.02, momentum=0.9), warmup))
    schedule = [horovod.keras.callbacks.LearningRateScheduleCallback(initial_lr=0.02, multiplier=0.5, start_epoch=1)]
    note("fit, schedule", fitted(lambda: legacy.SGD(0.02, momentum=0.9), schedule))
    note("keras allreduce", horovod.keras.allreduce(float(hvd.rank()), name="value"))
    note("keras broadcast", horovod.keras.broadcast(float(hvd.rank()), 0, name="sent"))


def main():
    hvd.init()
    for part in (reductions, gatherings, gradients, tapes, fits):
        part()
    if hvd.rank() == 0:
        lines = (f" {json.dumps(name)}: {json.dumps(value)}" for name, value in FOUND.items())
        Path(sys.argv[1]).write_text("{\n" + ",\n".join(lines) + "\n}\n")
    hvd.shutdown()


if __name__ == "__main__":
    main()
