from azureml.core import ComputeTarget, Dataset, Datastore, Environment, Experiment, Model, Run, Workspace
from azureml.core.authentication import InteractiveLoginAuthentication
from azureml.core.compute import AmlCompute

ws = Workspace.from_config(auth=InteractiveLoginAuthentication(tenant_id="x"))
ws.write_config(path=".azureml")
print("found again", Workspace.from_config(path="./.azureml/config.json").name == ws.name)
print(ws.name, ws.resource_group, ws.location, ws.subscription_id, sep="\n")
print(list(ws.compute_targets), list(ws.datastores), list(ws.experiments), list(ws.models))
print(list(ws.environments), list(ws.datasets))
print(Datastore.get(ws, datastore_name="workspaceblobstore").name, ws.get_default_datastore().datastore_type)
for name in Environment.list(workspace=ws):
    if name.startswith("AzureML"):
        print(name)
env = Environment.get(workspace=ws, name="AzureML-Minimal")
print(env.name)
print(ws.get_mlflow_tracking_uri())
print(ws.get_details()["name"])
store = ws.get_default_datastore()
print(store.name, store.datastore_type, store.account_name, store.container_name)
for name, target in ws.compute_targets.items():
    print(name, target.type, type(target) is AmlCompute, target.provisioning_state)
same = Workspace.get(name="somewhere", subscription_id="<SUBSCRIPTION_ID>", resource_group="<RESOURCE_GROUP>")
print("the same:", same.name == ws.name)
