"""What only Muster's layer can: Keras 3 with Horovod's optimizer and callbacks, present optimizers of tf_keras, errors.

Every rank checks what it gets, and says so at the end.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
from muster.runtime.parts.horovod import HorovodCompat

sys.meta_path.append(HorovodCompat)

import horovod.keras as hvd  # noqa: E402
import horovod.tensorflow  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
import tf_keras  # noqa: E402
from horovod.common.exceptions import HorovodInternalError  # noqa: E402


def fitted(kit, optimizer, callbacks):
    kit.utils.set_random_seed(hvd.rank())
    model = kit.Sequential([kit.Input((4,)), kit.layers.Dense(8, activation="tanh"), kit.layers.Dense(1)])
    model.compile(optimizer=optimizer, loss="mse", **({"jit_compile": False} if kit is tf_keras else {}))
    x = np.random.default_rng(hvd.rank()).normal(size=(64, 4)).astype("float32")
    history = model.fit(x, x.sum(axis=1), batch_size=8, epochs=4, callbacks=callbacks, verbose=0).history
    assert history["loss"][-1] < 0.8 * history["loss"][0], history["loss"]
    weights = hvd.allgather(np.concatenate([array.ravel() for array in model.get_weights()])[None])
    assert np.array_equal(weights[0], weights[-1]), "ranks have different weights"
    return model, history


def keras_3():
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.1, warmup_epochs=2, verbose=1),
    ]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    model, history = fitted(keras, optimizer, callbacks)
    losses = horovod.tensorflow.allgather_object(history["loss"])
    assert losses[0] == losses[-1], "metrics are not averaged"
    assert abs(history["lr"][-1] - 0.1) < 1e-6, history["lr"]
    path = f"model-{hvd.rank()}.keras"
    model.save(path)
    assert type(keras.models.load_model(path).optimizer) is keras.optimizers.SGD
    assert type(hvd.load_model(path).optimizer).apply is not keras.optimizers.SGD.apply


def several_passes():
    import horovod.tensorflow.keras as of_tensorflow

    assert of_tensorflow.rank() == hvd.rank()
    for kit in (keras, tf_keras):
        optimizer = hvd.DistributedOptimizer(
            kit.optimizers.Adam(0.05), backward_passes_per_step=2, average_aggregated_gradients=True
        )
        variable = kit.Variable([1.0, 2.0]) if kit is keras else tf.Variable([1.0, 2.0])
        before = np.array(variable.numpy())
        optimizer.apply_gradients([(tf.constant([1.0, float(hvd.rank())]), variable)])
        assert np.array_equal(variable.numpy(), before), "the first of two passes changes nothing"
        optimizer.apply_gradients([(tf.constant([1.0, 1.0]), variable)])
        assert not np.array_equal(variable.numpy(), before)
        of_ranks = hvd.allgather(np.array(variable.numpy())[None])
        assert np.array_equal(of_ranks[0], of_ranks[-1])


def joining():
    for _ in range(1 + 2 * hvd.rank()):
        horovod.tensorflow.allreduce(tf.ones(3))
    assert horovod.tensorflow.join() == hvd.size() - 1


def out_of_step():
    try:
        horovod.tensorflow.allreduce(tf.ones(2 + hvd.rank()), name="odd")
    except HorovodInternalError as error:
        assert "in the same order" in str(error), error
    else:
        raise AssertionError("ranks that differ were not told")


hvd.init()
for check in (keras_3, several_passes, joining, out_of_step):
    check()
print(f"rank {hvd.rank()}: as it should be", flush=True)
