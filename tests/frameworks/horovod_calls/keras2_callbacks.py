"""Real Horovod's callbacks, as scripts use them, in what `environment: horovod-tensorflow` makes of a rank."""

import os

os.environ.update(TF_USE_LEGACY_KERAS="1", HOROVOD_KERAS="tf_keras", TF_CPP_MIN_LOG_LEVEL="3")
from muster.runtime.parts import horovod as part

part.install()

import horovod.keras as hvd  # noqa: E402
import horovod.tensorflow.keras as hvd_of_tensorflow  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402


def train(kit, of_horovod, optimizer):
    kit.utils.set_random_seed(hvd.rank())
    model = kit.Sequential([kit.Input((4,)), kit.layers.Dense(8, activation="tanh"), kit.layers.Dense(1)])
    model.compile(optimizer=of_horovod.DistributedOptimizer(optimizer), loss="mse")
    x = np.random.default_rng(hvd.rank()).normal(size=(64, 4)).astype("float32")
    callbacks = [
        of_horovod.callbacks.BroadcastGlobalVariablesCallback(0),
        of_horovod.callbacks.MetricAverageCallback(),
        of_horovod.callbacks.LearningRateWarmupCallback(initial_lr=0.05, warmup_epochs=2),
        of_horovod.callbacks.LearningRateScheduleCallback(initial_lr=0.05, multiplier=0.5, start_epoch=2),
    ]
    losses = model.fit(x, x.sum(axis=1), batch_size=8, epochs=4, callbacks=callbacks, verbose=0).history["loss"]
    assert losses[-1] < 0.8 * losses[0], losses
    weights = hvd.allgather(np.concatenate([array.ravel() for array in model.get_weights()])[None], name="weights")
    assert np.array_equal(weights[0], weights[-1]), "ranks have different weights"


hvd.init()
train(keras, hvd, keras.optimizers.legacy.SGD(0.05, momentum=0.9))
train(keras, hvd, keras.optimizers.SGD(0.05, momentum=0.9))
train(tf.keras, hvd_of_tensorflow, tf.keras.optimizers.legacy.Adam(0.05))
train(tf.keras, hvd_of_tensorflow, tf.keras.optimizers.Adam(0.05))
print(f"rank {hvd.rank()}: as it should be", flush=True)
