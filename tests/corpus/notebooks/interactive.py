from azureml.core import Experiment, Workspace

ws = Workspace.from_config()
experiment = Experiment(workspace=ws, name="train-within-notebook")
run = experiment.start_logging(snapshot_directory=None)
run.log("alpha", 0.03)
run.log_list("Fibonacci numbers", [0, 1, 1, 2, 3, 5, 8])
run.log_row("Y over X", x=1, y=2)
with open("model.txt", "w") as stream:
    stream.write("weights")
run.upload_file(name="outputs/model.txt", path_or_stream="model.txt")
run.tag("kind", "interactive")
with experiment.start_logging() as inner:
    inner.log("mse", 3.5)
run.complete()
print(run.get_status(), run.get_metrics())
print(run.get_file_names())
model = run.register_model(model_name="interactive_model", model_path="outputs/model.txt")
