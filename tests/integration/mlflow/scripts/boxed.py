"""A script in a container: MLflow's client from a mounted folder, its calls through the proxy inside."""

import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])

import mlflow

with mlflow.start_run() as run:
    mlflow.log_metrics({"loss": 0.25, "accuracy": 0.75}, step=3)
    mlflow.log_param("boxed", Path("/run/.containerenv").exists())
    mlflow.log_text("from inside", "notes/box.txt")
    found = mlflow.MlflowClient().get_run(run.info.run_id)
    assert found.data.metrics["loss"] == 0.25, found.data.metrics
    assert mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/notes/box.txt") == "from inside"
print("logged from the container")
