"""Writes a store of MLflow's own: a run that ended well, and one that did not."""

import mlflow

mlflow.set_experiment("old")
with mlflow.start_run(run_name="kept"):
    mlflow.log_param("lr", 0.1)
    mlflow.set_tag("team", "vision")
    for step in range(3):
        mlflow.log_metric("loss", 0.5**step, step=step)
    mlflow.log_metric("bad", float("nan"))
    mlflow.log_text("hello", "notes/hello.txt")
try:
    with mlflow.start_run(run_name="broken"):
        raise RuntimeError("as it should")
except RuntimeError:
    pass
