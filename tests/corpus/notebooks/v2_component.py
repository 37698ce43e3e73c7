from azure.ai.ml import Input, MLClient, load_component, load_job
from azure.identity import DefaultAzureCredential

ml_client = MLClient(DefaultAzureCredential(), "<ID>", "<GROUP>", "<WORKSPACE>")
copy = load_component(source="./copy_component.yml")
# Register the component with the workspace
copy = ml_client.create_or_update(copy)
print("component", copy.name, copy.version)
job = copy(data=Input(type="uri_file", path="./data/numbers.csv"), learning_rate=0.5)
job.compute = "local"
job.experiment_name = "components"
ml_client.jobs.stream(ml_client.jobs.create_or_update(job).name)
