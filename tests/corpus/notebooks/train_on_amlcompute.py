import os

import azureml.core
from azureml.core import ComputeTarget, Environment, Experiment, Keyvault, Model, ScriptRunConfig, Workspace
from azureml.core.authentication import ServicePrincipalAuthentication
from azureml.core.compute import AmlCompute
from azureml.core.compute_target import ComputeTargetException
from azureml.core.conda_dependencies import CondaDependencies
from azureml.core.resource_configuration import ResourceConfiguration
from azureml.core.runconfig import DEFAULT_CPU_IMAGE, DockerConfiguration
from azureml.exceptions import ActivityFailedException, ProjectSystemException
from azureml.widgets import RunDetails

print("This notebook was created using SDK version", azureml.core.VERSION, azureml.core.__version__)
auth = ServicePrincipalAuthentication(tenant_id="x", service_principal_id="y", service_principal_password="z")
ws = Workspace.from_config(auth=auth)
keyvault = ws.get_default_keyvault()
keyvault.set_secret(name="my-secret", value="a-secret-value")
print([secret["name"] for secret in keyvault.list_secrets()])
cpu_cluster_name = os.environ.get("AML_COMPUTE_CLUSTER_NAME", "cpu-cluster")
try:
    cpu_cluster = ComputeTarget(workspace=ws, name=cpu_cluster_name)
    print("Found existing cluster, use it.")
except ComputeTargetException:
    compute_config = AmlCompute.provisioning_configuration(vm_size="STANDARD_D2_V2", vm_priority="dedicated",
                                                           min_nodes=0, max_nodes=2,
                                                           idle_seconds_before_scaledown=1200)
    cpu_cluster = ComputeTarget.create(ws, cpu_cluster_name, compute_config)
cpu_cluster.wait_for_completion(show_output=True, min_node_count=None, timeout_in_minutes=20)
print(cpu_cluster.status.serialize()["name"], cpu_cluster.provisioning_state, cpu_cluster.vm_size)
myenv = Environment("myenv")
myenv.docker.base_image = None
myenv.python.user_managed_dependencies = True
myenv.environment_variables = {"OMP_NUM_THREADS": "1"}
conda = CondaDependencies.create(conda_packages=["scikit-learn==0.24.1", "joblib"], python_version="3.8")
conda.add_pip_package("azureml-defaults")
conda.remove_conda_package("joblib")
print(conda.serialize_to_string().splitlines()[0], DEFAULT_CPU_IMAGE.split("/")[0])
src = ScriptRunConfig(source_directory="./project", script="train_logging.py",
                      arguments=["--regularization", 0.7],
                      compute_target=cpu_cluster, environment=myenv,
                      docker_runtime_config=DockerConfiguration(use_docker=True))
src.run_config.history.output_collection = True
experiment = Experiment(workspace=ws, name="train-on-amlcompute")
run = experiment.submit(config=src)
RunDetails(run).show()
try:
    run.wait_for_completion(show_output=True)
except (ActivityFailedException, ProjectSystemException) as error:
    print("failed", error)
    raise
metrics = run.get_metrics()
print(metrics["regularization rate"], metrics["accuracies"], run.get_properties())
print([name for name in run.get_file_names() if name.startswith("metrics/")])
details = run.get_details_with_logs()
print("secret has" in "".join(details["logFiles"].values()), run.get_all_logs(destination="got-logs")[0])
run.restore_snapshot(path="got-code")
print(sorted(os.listdir("got-code"))[:1], run.get_environment().name)
model = run.register_model(model_name="sklearn-mnist", model_path="outputs/model.pkl",
                           model_framework=Model.Framework.SCIKITLEARN, model_framework_version="0.24.1",
                           resource_configuration=ResourceConfiguration(cpu=1, memory_in_gb=0.5),
                           tags={"area": "mnist"})
print(model.name, model.id, model.version, model.model_framework, sep="\t")
keyvault.delete_secret("my-secret")
