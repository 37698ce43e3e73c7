"""A training script as users of MLflow and scikit-learn have it: autologging, figures, images, tables, a model."""

import os

import matplotlib as mpl
import mlflow
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

mlflow.autolog()
x, y = load_iris(return_X_y=True)
with mlflow.start_run() as run:
    model = LogisticRegression(max_iter=200).fit(x, y)
    figure, axes = plt.subplots()
    axes.plot([1, 2])
    mlflow.log_figure(figure, "plots/line.png")
    mlflow.log_image(np.zeros((8, 8, 3), dtype=np.uint8), "images/black.png")
    mlflow.log_image(np.zeros((8, 8, 3), dtype=np.uint8), key="steps", step=1)
    mlflow.log_table({"a": [1, 2], "b": ["x", "y"]}, "tables/t.json")
    mlflow.log_dict({"a": 1}, "settings.yaml")
    run_id = run.info.run_id
    if mlflow.__version__ < "3":
        uri = f"runs:/{run_id}/model"
    else:
        (logged,) = mlflow.search_logged_models(output_format="list")
        uri = logged.model_uri
assert run_id in set(mlflow.search_runs(experiment_names=[os.environ["MLFLOW_EXPERIMENT_NAME"]])["run_id"])
assert mlflow.load_table("tables/t.json", run_ids=[run_id])["a"].tolist() == [1, 2]
assert (mlflow.sklearn.load_model(uri).predict(x) == model.predict(x)).all()
print("loaded the model again")
