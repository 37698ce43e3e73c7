import argparse
import os

import mlflow
import mlflow.tensorflow
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--model-dir", type=str)
args = parser.parse_args()
mlflow.tensorflow.autolog()
x, y = np.random.rand(64, 28, 28).astype("float32"), np.random.randint(0, 10, 64)
model = tf.keras.models.Sequential([
    tf.keras.layers.Flatten(input_shape=(28, 28)),
    tf.keras.layers.Dense(16, activation="relu"),
    tf.keras.layers.Dense(10),
])
loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer="adam", loss=loss_fn, metrics=["accuracy"])
model.fit(x, y, epochs=args.epochs)
os.makedirs(os.path.dirname(args.model_dir), exist_ok=True)
model.save(args.model_dir)
