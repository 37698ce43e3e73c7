import os
import shutil

import azureml.core
from azureml.core import Experiment
from azureml.core.compute import AksCompute, AmlCompute, ComputeTarget
from azureml.core.compute_target import ComputeTargetException
from azureml.core.workspace import Workspace
from azureml.telemetry import set_diagnostics_collection
from azureml.train.dnn import Mpi, PyTorch
from azureml.widgets import RunDetails

print("SDK version:", azureml.core.VERSION)
set_diagnostics_collection(send_diagnostics=True)
ws = Workspace.from_config()
print("Workspace name: " + ws.name, "Azure region: " + ws.location, "Subscription id: " + ws.subscription_id,
      "Resource group: " + ws.resource_group, sep="\n")
cluster_name = "gpucluster"
try:
    compute_target = ComputeTarget(workspace=ws, name=cluster_name)
    print("Found existing compute target")
except ComputeTargetException:
    print("Creating a new compute target...")
    compute_config = AmlCompute.provisioning_configuration(vm_size="STANDARD_NC6", max_nodes=2)
    compute_target = ComputeTarget.create(ws, cluster_name, compute_config)
    compute_target.wait_for_completion(show_output=True, min_node_count=None, timeout_in_minutes=20)
print(compute_target.get_status().serialize())
project_folder = "./pytorch-project"
os.makedirs(project_folder, exist_ok=True)
shutil.copy("training/train_v1.py", project_folder)
experiment = Experiment(ws, name="pytorch-estimator")
estimator = PyTorch(source_directory=project_folder,
                    compute_target=compute_target,
                    script_params={"--num_epochs": 2, "--output_dir": "./outputs", "--verbose": ""},
                    entry_script="train_v1.py",
                    node_count=2,
                    distributed_training=Mpi(process_count_per_node=1),
                    framework_version="1.13",
                    use_gpu=True,
                    pip_packages=[])
run = experiment.submit(estimator)
RunDetails(run).show()
run.wait_for_completion(show_output=True)
print(run.get_status(), run.get_metrics()["epochs_done"])
assert run.get_status() == "Completed"
