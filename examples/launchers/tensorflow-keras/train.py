"""`model.fit` under MultiWorkerMirroredStrategy, which needs Keras 2: tf_keras, with TF_USE_LEGACY_KERAS=1."""

import hashlib

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
task, workers = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(32, activation="relu"), tf.keras.layers.Dense(1)])
    model.compile(optimizer=tf.keras.optimizers.Adam(0.01), loss="mse")

x = tf.random.stateless_normal((2048, 8), seed=(0, 1))
y = tf.reduce_sum(x, axis=1, keepdims=True)
# Each worker takes its share of every batch.
dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(64)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
history = model.fit(dataset.with_options(options), epochs=4, steps_per_epoch=16, verbose=2 if task == 0 else 0)

losses = history.history["loss"]
fingerprint = hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest()[:12]
print(f"rank {task} of {workers}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {fingerprint}")
