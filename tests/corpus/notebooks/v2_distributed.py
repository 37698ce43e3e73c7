from azure.ai.ml import MLClient, MpiDistribution, PyTorchDistribution, command
from azure.ai.ml.entities import Environment, ResourceConfiguration
from azure.identity import DefaultAzureCredential

ml_client = MLClient.from_config(DefaultAzureCredential())
env = Environment(image="mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04", name="plain-mpi", description="plain")
job = command(
    code="./training", command="python ranks.py", environment="azureml:AzureML-pytorch-1.10-ubuntu18.04-py38-cuda11-gpu:26",
    compute="local", instance_count=2,
    distribution={"type": "PyTorch", "process_count_per_instance": 1},
    environment_variables={"A": "1"}, shm_size="2g", timeout=600,
)
ml_client.jobs.stream(ml_client.jobs.create_or_update(job).name)
job = command(code="./training", command="python ranks.py", environment="azureml:AzureML-pytorch-1.10-ubuntu18.04-py38-cuda11-gpu:26",
              compute="local", resources=ResourceConfiguration(instance_count=2),
              distribution=MpiDistribution(process_count_per_instance=1))
job.set_limits(timeout=600)
ml_client.jobs.stream(ml_client.jobs.create_or_update(job).name)
