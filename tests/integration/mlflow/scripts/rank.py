"""A training script as its users have it: every rank logs, rank 0 logs and registers a model."""

import os

import mlflow


class Doubler(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return [value * 2 for value in model_input]


rank = int(os.environ["RANK"])
mlflow.set_experiment("some-experiment-of-the-script")
mlflow.start_run()
mlflow.log_param("lr", 0.1)
for step in range(20):
    mlflow.log_metric(f"loss_{rank}", 1.0 / (step + 1), step=step)
mlflow.log_metrics({"bad": float("nan")}, step=3)
mlflow.set_tag(f"rank_{rank}", "was here")
mlflow.log_text(f"hello from {rank}", f"notes/rank_{rank}.txt")
if rank == 0:
    info = mlflow.pyfunc.log_model(artifact_path="./model", python_model=Doubler(), pip_requirements=[])
    mlflow.register_model(info.model_uri, "doubler")
    assert mlflow.pyfunc.load_model("models:/doubler/1").predict([21]) == [42]
    run_id = mlflow.active_run().info.run_id
    assert mlflow.MlflowClient().get_run(run_id).data.metrics["loss_0"] == 0.05, "reads see what was logged before"
    assert [point.step for point in mlflow.MlflowClient().get_metric_history(run_id, "loss_0")] == [*range(20)]
# A rank cannot end Muster's run.
mlflow.end_run("FAILED")
# What follows without a run of its own is the run's too.
mlflow.log_metric("after_the_end", 1.0)
