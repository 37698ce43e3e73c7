from azureml.core import Experiment, ScriptRunConfig, Workspace
from azureml.data.data_reference import DataReference

ws = Workspace.from_config()
ds = ws.get_default_datastore()
ds.upload(src_dir="data", target_path="referenced", overwrite=True, show_progress=False)
reference = DataReference(datastore=ds, data_reference_name="numbers", path_on_datastore="referenced", mode="mount")
src = ScriptRunConfig("training", "train_reference.py", arguments=["--data-folder", str(reference)], compute_target="local")
src.run_config.data_references = {reference.data_reference_name: reference.to_config()}
run = Experiment(ws, "references").submit(src)
run.wait_for_completion(show_output=True)
