import argparse
import json
import os

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", default=1, type=int)
parser.add_argument("--steps-per-epoch", type=int, default=4)
parser.add_argument("--model-dir", type=str, default="outputs")
args = parser.parse_args()
tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])
task = tf_config["task"]
strategy = tf.distribute.MultiWorkerMirroredStrategy()
x, y = np.random.rand(64, 28, 28, 1).astype("float32"), np.random.randint(0, 10, 64)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(8 * num_workers)
with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.layers.Input(shape=(28, 28, 1)),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10),
    ])
    model.compile(loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  optimizer=tf.keras.optimizers.SGD(learning_rate=0.001), metrics=["accuracy"])
model.fit(dataset, epochs=args.epochs, steps_per_epoch=args.steps_per_epoch)
is_chief = task["index"] == 0
# Every worker takes part in saving; the others write to a folder of their own.
path = args.model_dir if is_chief else os.path.join("/tmp", "worker-{}".format(os.getpid()))
model.save(path)
print("worker", task["index"], "done")
