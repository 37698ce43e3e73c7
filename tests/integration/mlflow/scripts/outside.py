"""MLflow's own client outside of a run: everything that it can ask of a tracking server and a model registry."""

import tempfile
from pathlib import Path

import mlflow
from mlflow import MlflowClient


class Doubler(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return [value * 2 for value in model_input]


def tracking() -> None:
    client = MlflowClient()
    mlflow.set_experiment("client-tests")
    with mlflow.start_run(run_name="first") as run:
        mlflow.log_params({"lr": 0.1, "b": "x"})
        for step in range(5):
            mlflow.log_metric("loss", 1.0 / (step + 1), step=step)
        mlflow.log_metrics({"acc": 0.5, "nan": float("nan"), "inf": float("inf")}, step=3)
        mlflow.set_tags({"kind": "demo", "other": "v"})
        mlflow.log_text("hello", "notes/hello.txt")
        mlflow.log_dict({"a": 1}, "conf.json")
        file = Path(tempfile.mkdtemp(), "f.bin")
        file.write_bytes(b"\0" * 10)
        mlflow.log_artifact(str(file), "files")
    run_id, experiment = run.info.run_id, run.info.experiment_id
    got = client.get_run(run_id)
    assert got.data.params == {"lr": "0.1", "b": "x"}
    assert (got.data.metrics["loss"], got.data.metrics["acc"], got.data.metrics["inf"]) == (0.2, 0.5, float("inf"))
    assert got.data.metrics["nan"] != got.data.metrics["nan"]
    assert got.info.status == "FINISHED" and got.data.tags["kind"] == "demo"
    assert [point.step for point in client.get_metric_history(run_id, "loss")] == [0, 1, 2, 3, 4]
    wanted = "metrics.loss < 0.3 and params.b = 'x' and tags.kind LIKE 'de%'"
    assert [item.info.run_id for item in client.search_runs([experiment], wanted, order_by=["metrics.loss"])] == [
        run_id
    ]
    assert not client.search_runs([experiment], "metrics.loss > 0.3")
    assert {item.path for item in client.list_artifacts(run_id)} >= {"notes", "conf.json", "files"}
    assert [item.path for item in client.list_artifacts(run_id, "notes")] == ["notes/hello.txt"]
    assert mlflow.artifacts.load_text(got.info.artifact_uri + "/notes/hello.txt") == "hello"
    assert client.get_experiment_by_name("nobody's") is None
    client.set_experiment_tag(experiment, "k", "v")
    assert client.get_experiment(experiment).tags["k"] == "v"
    assert "client-tests" in [item.name for item in client.search_experiments()]
    client.delete_run(run_id)
    assert client.get_run(run_id).info.lifecycle_stage == "deleted" and not client.search_runs([experiment])
    client.restore_run(run_id)
    client.delete_tag(run_id, "kind")


def registry() -> None:
    client = MlflowClient()
    named = {"name": "model"} if mlflow.__version__ >= "3" else {"artifact_path": "model"}
    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(**named, python_model=Doubler(), pip_requirements=[])
    version = mlflow.register_model(info.model_uri, "doubler").version
    client.set_registered_model_alias("doubler", "champion", version)
    assert str(client.get_model_version_by_alias("doubler", "champion").version) == "1"
    assert mlflow.pyfunc.load_model("models:/doubler/1").predict([1, 2]) == [2, 4]
    assert mlflow.pyfunc.load_model("models:/doubler@champion").predict([3]) == [6]
    client.transition_model_version_stage("doubler", "1", "Staging")
    assert str(client.get_latest_versions("doubler", ["Staging"])[0].version) == "1"
    client.set_model_version_tag("doubler", "1", "q", "ok")
    assert client.get_model_version("doubler", "1").tags["q"] == "ok"
    client.update_registered_model("doubler", "what it does")
    assert [model.name for model in client.search_registered_models()] == ["doubler"]
    assert len(client.search_model_versions("name='doubler'")) == 1
    client.rename_registered_model("doubler", "doubler-2")
    client.delete_registered_model("doubler-2")


tracking()
registry()
print("all of MLflow", mlflow.__version__, "worked")
