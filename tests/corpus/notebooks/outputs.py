from azureml.core import Dataset, Experiment, ScriptRunConfig, Workspace
from azureml.data import OutputFileDatasetConfig

ws = Workspace.from_config()
def_blob_store = ws.get_default_datastore()
output_data = OutputFileDatasetConfig(destination=(def_blob_store, "sample/outputdataset"))
output_data = output_data.register_on_complete(name="prepared", description="prepared data", tags={"a": "b"})
input_data = Dataset.File.from_files("./data")
src = ScriptRunConfig(source_directory="training", script="copy.py",
                      arguments=[input_data.as_named_input("input").as_mount(), output_data], compute_target="local")
run = Experiment(ws, "outputs").submit(src)
run.wait_for_completion(show_output=True)
print(Dataset.get_by_name(ws, "prepared").to_path())
