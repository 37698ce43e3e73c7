"""A training script as users of Keras and MLflow have it: `mlflow.tensorflow.autolog()`, then `fit`."""

import mlflow
import mlflow.tensorflow
import numpy as np
import tensorflow as tf

mlflow.tensorflow.autolog()
x = np.linspace(-1, 1, 64, dtype="float32").reshape(-1, 1)
y = 2 * x + 1
tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse", metrics=["mae"])
with mlflow.start_run() as run:
    model.fit(x, y, epochs=5, batch_size=16, validation_data=(x, y), verbose=0)
    if mlflow.__version__ < "3":
        uri = f"runs:/{run.info.run_id}/model"
    else:
        uri = mlflow.search_logged_models(output_format="list")[0].model_uri
again = mlflow.tensorflow.load_model(uri)
assert np.allclose(again.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-5)
print("loaded the model again")
