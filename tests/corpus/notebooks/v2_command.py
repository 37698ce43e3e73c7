from azure.ai.ml import Input, MLClient, Output, command
from azure.ai.ml.constants import AssetTypes, InputOutputModes
from azure.ai.ml.entities import AmlCompute, Data, Environment
from azure.core.exceptions import ResourceNotFoundError
from azure.identity import DefaultAzureCredential, InteractiveBrowserCredential

try:
    credential = DefaultAzureCredential()
    credential.get_token("https://management.azure.com/.default")
except Exception:
    credential = InteractiveBrowserCredential()
ml_client = MLClient.from_config(credential=credential)
ml_client = MLClient(credential=credential, subscription_id="<ID>", resource_group_name="<GROUP>",
                     workspace_name="<WORKSPACE>")
try:
    cpu = ml_client.compute.get("cpu-cluster")
except Exception:
    cpu = AmlCompute(name="cpu-cluster", type="amlcompute", size="STANDARD_DS3_V2", min_instances=0, max_instances=2,
                     idle_time_before_scale_down=180, tier="Dedicated")
    cpu = ml_client.compute.begin_create_or_update(cpu).result()
print(f"{cpu.name} of type {cpu.type}, the compute size is {cpu.size}")
my_data = Data(path="./data/numbers.csv", type=AssetTypes.URI_FILE, description="numbers", name="numbers-v2",
               version="1")
ml_client.data.create_or_update(my_data)
asset = ml_client.data.get(name="numbers-v2", version="1")
print(asset.path)
job = command(
    code="./training",
    command="python copy_file.py --data ${{inputs.data}} --lr ${{inputs.learning_rate}} --out ${{outputs.kept}}",
    inputs={"data": Input(type="uri_file", path="azureml:numbers-v2:1", mode=InputOutputModes.RO_MOUNT),
            "learning_rate": 0.01},
    outputs={"kept": Output(type=AssetTypes.URI_FOLDER, mode="rw_mount")},
    environment="AzureML-minimal-ubuntu20.04-py38-cpu-inference@latest",
    compute="cpu-cluster",
    instance_count=1,
    display_name="v2-command",
    experiment_name="v2",
    description="a command",
    tags={"a": "b"},
)
returned_job = ml_client.create_or_update(job)
print(returned_job.studio_url, returned_job.status)
ml_client.jobs.stream(returned_job.name)
returned_job = ml_client.jobs.get(returned_job.name)
print(returned_job.status)
ml_client.jobs.download(name=returned_job.name, download_path="./got", all=True)
ml_client.jobs.download(name=returned_job.name, output_name="kept", download_path="./got-one")
