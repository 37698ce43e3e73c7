"""Synchronous data parallel with MultiWorkerMirroredStrategy, in a loop of its own."""

import hashlib

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # reads TF_CONFIG; must come before anything else of TensorFlow
task = strategy.cluster_resolver.task_id
workers = strategy.extended._num_workers

with strategy.scope():
    hidden = tf.Variable(tf.random.stateless_normal((8, 32), seed=(0, 1)) * 0.3)
    output = tf.Variable(tf.random.stateless_normal((32, 1), seed=(0, 2)) * 0.3)
variables = [hidden, output]


def batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
    """This worker's own data."""
    random = tf.random.Generator.from_seed(context.input_pipeline_id)
    x = random.normal((64 * 60, 8))
    y = tf.reduce_sum(x, axis=1, keepdims=True)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(64)


@tf.function
def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    def of_replica(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.nn.relu(x @ hidden) @ output - y) ** 2)
        gradients = tf.distribute.get_replica_context().all_reduce("mean", tape.gradient(loss, variables))
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(0.05 * gradient)
        return loss

    return strategy.reduce("mean", strategy.run(of_replica, args=(x, y)), axis=None)


losses = [float(step(x, y)) for x, y in strategy.distribute_datasets_from_function(batches)]
fingerprint = hashlib.sha256(b"".join(variable.numpy().tobytes() for variable in variables)).hexdigest()[:12]
print(f"rank {task} of {workers}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {fingerprint}")
