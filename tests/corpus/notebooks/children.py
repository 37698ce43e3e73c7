from azureml.core import Experiment, ScriptRunConfig, Workspace

ws = Workspace.from_config()
config = ScriptRunConfig(source_directory="training", script="train_children.py", compute_target="local")
run = Experiment(ws, "children").submit(config)
run.wait_for_completion(show_output=True)
print(sorted(child.get_metrics()["alpha"] for child in run.get_children()))
runs, with_children = list(run.experiment.get_runs()), list(run.experiment.get_runs(include_children=True))
print("runs", [each.id == run.id for each in runs], len(with_children))
