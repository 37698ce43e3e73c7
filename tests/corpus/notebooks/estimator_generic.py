from azureml.core import Datastore, Experiment, Workspace
from azureml.core.runconfig import DEFAULT_CPU_IMAGE
from azureml.train.estimator import Estimator

ws = Workspace.from_config()
ds = ws.get_default_datastore()
ds.upload(src_dir="./data", target_path="digits", overwrite=True, show_progress=True)
script_params = {
    "--data-folder": ds.path("digits").as_mount(),
    "--regularization": 0.8,
}
est = Estimator(source_directory="training",
                script_params=script_params,
                compute_target="local",
                entry_script="train_data.py",
                conda_packages=[])
run = Experiment(workspace=ws, name="generic-estimator").submit(config=est)
run.wait_for_completion(show_output=True)
model = run.register_model(model_name="digits_model", model_path="outputs/model.txt")
print(model.name, model.id, model.version, sep="\t")
