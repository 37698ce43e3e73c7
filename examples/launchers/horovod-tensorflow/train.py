"""TensorFlow with Horovod, in a loop of its own."""

import hashlib

import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")

hidden = tf.Variable(tf.random.normal((8, 32)) * 0.3)
output = tf.Variable(tf.random.normal((32, 1)) * 0.3)
variables = [hidden, output]
hvd.broadcast_variables(variables, root_rank=0)
data = tf.random.Generator.from_seed(hvd.rank())


@tf.function
def step(x: tf.Tensor) -> tf.Tensor:
    y = tf.reduce_sum(x, axis=1, keepdims=True)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.nn.relu(x @ hidden) @ output - y) ** 2)
    tape = hvd.DistributedGradientTape(tape)
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(0.05 * gradient)
    return loss


losses = [float(step(data.normal((64, 8)))) for _ in range(60)]
fingerprint = hashlib.sha256(b"".join(variable.numpy().tobytes() for variable in variables)).hexdigest()[:12]
print(f"rank {hvd.rank()} of {hvd.size()}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, weights {fingerprint}")
