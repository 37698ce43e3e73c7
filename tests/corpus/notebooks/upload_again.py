from azureml.core import Dataset, Experiment, ScriptRunConfig, Workspace
from azureml.data import OutputFileDatasetConfig

ws = Workspace.from_config()
datastore = ws.get_default_datastore()
for _ in range(2):
    # Cells that are run once more.
    datastore.upload(src_dir="./data", target_path="uploaded", overwrite=True, show_progress=True)
    dataset = Dataset.File.from_files(path=(datastore, "uploaded"))
    dataset = dataset.register(workspace=ws, name="uploaded", description="numbers", create_new_version=True)
output = OutputFileDatasetConfig(name="kept", destination=(datastore, "kept/{run-id}/{output-name}"))
src = ScriptRunConfig(source_directory="training", script="variables.py",
                      arguments=["--data", dataset.as_named_input("numbers").as_mount(), "--out", output],
                      compute_target="local")
run = Experiment(ws, "uploaded").submit(src)
run.wait_for_completion(show_output=True)
print("kept in", [path for path in Dataset.File.from_files((datastore, f"kept/{run.id}/kept")).to_path()])
