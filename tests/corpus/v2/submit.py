from azure.ai.ml import Input, MLClient, command, load_component
from azure.ai.ml.constants import AssetTypes
from azure.identity import DefaultAzureCredential

ml_client = MLClient(DefaultAzureCredential(), "<SUBSCRIPTION_ID>", "<RESOURCE_GROUP>", "<AML_WORKSPACE_NAME>")

job = command(
    code="./src",
    command="python main.py --training_data ${{inputs.data}} --max_epochs ${{inputs.epochs}}",
    inputs={"data": Input(type=AssetTypes.URI_FOLDER, path="./data"), "epochs": 3},
    display_name="flowers-python",
    experiment_name="flowers",
    tags={"kind": "corpus"},
)
job.inputs.epochs = 2
job.environment_variables["FLOWERS"] = "many"
returned_job = ml_client.jobs.create_or_update(job, tags={"kind": "changed"}, description="with the SDK")
ml_client.jobs.stream(returned_job.name)
returned_job.tags["looked"] = "at"
returned_job = ml_client.create_or_update(returned_job)
print("kept:", returned_job.tags, returned_job.description, returned_job.type, returned_job.environment_variables.FLOWERS)
print("by:", returned_job.creation_context.created_by, list(ml_client.jobs.list(parent_job_name=returned_job.name)))

train = load_component(source="./components/train.yml")
second = train(training_data=Input(type="uri_folder", path="../data"), max_epochs=1)
second.environment = None
returned_job = ml_client.create_or_update(second)
ml_client.jobs.stream(returned_job.name)
ml_client.jobs.download(name=returned_job.name, download_path="./downloaded", output_name="model_output")
print("status:", returned_job.status)
print("page:", returned_job.services["Studio"].endpoint)
print("output:", returned_job.outputs.model_output.path.split("/")[-1], returned_job.tags)
print("environments:", [environment.name for environment in ml_client.environments.list()])
print("jobs:", len(list(ml_client.jobs.list(max_results=1))))
