"""The ways to launch of the v1 guide to distributed training, one after the other."""

import azureml.core
from azureml.core import Environment, Experiment, ScriptRunConfig, Workspace
from azureml.core.runconfig import MpiConfiguration, PyTorchConfiguration, TensorflowConfiguration
from azureml.widgets import RunDetails

print("SDK version:", azureml.core.VERSION)
ws = Workspace.from_config()
pytorch = Environment.get(workspace=ws, name="AzureML-PyTorch-1.6-GPU")
current = Environment("user-managed")
current.python.user_managed_dependencies = True

launch = (
    "python -m torch.distributed.launch --nproc_per_node 2 --nnodes 2 --node_rank $NODE_RANK "
    "--master_addr $MASTER_ADDR --master_port $MASTER_PORT ranks.py --epochs 50"
).split()
shapes = {
    "mpi": dict(
        script="ranks.py",
        environment=pytorch,
        distributed_job_config=MpiConfiguration(process_count_per_node=2, node_count=1),
    ),
    "per_process": dict(
        script="ranks.py",
        arguments=["--epochs", 50],
        environment=pytorch,
        distributed_job_config=PyTorchConfiguration(process_count=4, node_count=2),
    ),
    "local_rank": dict(
        script="ranks.py",
        arguments=["--epochs", 50, "--local_rank", "$LOCAL_RANK"],
        environment=pytorch,
        distributed_job_config=PyTorchConfiguration(process_count=2, node_count=1),
    ),
    "per_node": dict(command=launch, environment=pytorch, distributed_job_config=PyTorchConfiguration(node_count=2)),
    "one_node": dict(
        command="python -m torch.distributed.launch --nproc_per_node 2 --use_env ranks.py --epochs 50".split(),
        environment=pytorch,
    ),
    "lightning": dict(
        script="ranks.py",
        arguments=["--epochs", 50, "--num_nodes", 2, "--devices", 2],
        environment=current,
        distributed_job_config=PyTorchConfiguration(node_count=2),
    ),
    "tensorflow": dict(
        script="ranks.py",
        environment=current,
        distributed_job_config=TensorflowConfiguration(worker_count=2, parameter_server_count=0),
    ),
}
runs = {}
for name, shape in shapes.items():
    config = ScriptRunConfig(source_directory="./src", compute_target="local", **shape)
    runs[name] = Experiment(ws, name).submit(config)
RunDetails(runs["mpi"]).show()
for name, run in runs.items():
    run.wait_for_completion(show_output=False)
    run.download_files(prefix="user_logs/", output_directory="./logs/" + name)
    print(name, run.get_status())
