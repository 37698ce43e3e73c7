"""Keras `fit` with Horovod. Horovod 0.28 supports Keras 2, whose current name is tf_keras."""

import hashlib
import sys

import numpy as np
import tf_keras as keras

sys.modules["keras"] = keras  # what Horovod imports
import horovod.keras as hvd  # noqa: E402

hvd.init()
keras.utils.set_random_seed(hvd.rank())
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.legacy.Adam(0.01)), loss="mse")

x = np.random.default_rng(hvd.rank()).normal(size=(2048, 8)).astype("float32")
history = model.fit(
    x,
    x.sum(axis=1, keepdims=True),
    batch_size=64,
    epochs=3,
    callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()],
    verbose=2 if hvd.rank() == 0 else 0,
)

losses = history.history["loss"]
fingerprint = hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest()[:12]
print(f"rank {hvd.rank()} of {hvd.size()}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {fingerprint}")
