"""Which name of Azure ML's Python packages is what in Muster: the table behind `python -m muster.azureml`."""

from __future__ import annotations

from collections.abc import Mapping

_CORE = {
    "ComputeTarget": "muster.sdk.compute",
    "Dataset": "muster.sdk.dataset",
    "Datastore": "muster.sdk.datastore",
    "Environment": "muster.sdk.environment",
    "Experiment": "muster.sdk.experiment",
    "Model": "muster.sdk.model",
    "Run": "muster.sdk.run",
    "Webservice": "muster.sdk.webservice",
    "RunConfiguration": "muster.sdk.runconfig",
    "ScriptRunConfig": "muster.sdk.runconfig",
    "VERSION": "muster.azureml.standins",
    "Workspace": "muster.sdk.workspace",
}
_CREDENTIALS = "muster.azureml.standins"
_EXCEPTIONS = {
    "ActivityFailedException": "muster.errors:RunFailed",
    "AzureMLException": "muster.errors:MusterError",
    "ComputeTargetException": "muster.sdk.compute",
    "DatasetExecutionError": "muster.errors:MusterError",
    "ExperimentExecutionException": "muster.errors:MusterError",
    "ModelNotFoundException": "muster.errors:NotFound",
    "ProjectSystemException": "muster.errors:MusterError",
    "RunConfigurationException": "muster.errors:JobError",
    "WebserviceException": "muster.errors:MusterError",
    "UserErrorException": "muster.errors:UserError",
    "WorkspaceException": "muster.errors:MusterError",
}

_SERVICES = ("AciWebservice", "AksWebservice", "LocalWebservice", "Webservice")
_ESTIMATORS = ("Gloo", "Keras", "Mpi", "Nccl", "ParameterServer", "PyTorch", "TensorFlow")

MODULES: Mapping[str, Mapping[str, str]] = {
    "azureml": {},
    "azureml.core": _CORE,
    "azureml.core.authentication": {
        "AzureCliAuthentication": _CREDENTIALS,
        "InteractiveLoginAuthentication": _CREDENTIALS,
        "MsiAuthentication": _CREDENTIALS,
        "ServicePrincipalAuthentication": _CREDENTIALS,
    },
    "azureml.core.compute": {
        "AmlCompute": "muster.sdk.compute",
        "ComputeTarget": "muster.sdk.compute",
    },
    "azureml.core.compute_target": {
        "ComputeTarget": "muster.sdk.compute",
        "ComputeTargetException": "muster.sdk.compute",
    },
    "azureml.core.conda_dependencies": {"CondaDependencies": "muster.sdk.environment"},
    "azureml.core.container_registry": {"ContainerRegistry": "muster.azureml.standins"},
    "azureml.core.dataset": {"Dataset": "muster.sdk.dataset"},
    "azureml.core.datastore": {"Datastore": "muster.sdk.datastore"},
    "azureml.core.environment": {
        "CondaDependencies": "muster.sdk.environment",
        "DockerSection": "muster.sdk.environment",
        "Environment": "muster.sdk.environment",
        "PythonSection": "muster.sdk.environment",
    },
    "azureml.core.experiment": {"Experiment": "muster.sdk.experiment"},
    "azureml.core.model": {"InferenceConfig": "muster.sdk.webservice", "Model": "muster.sdk.model"},
    "azureml.core.run": {"Run": "muster.sdk.run", "get_run": "muster.azureml.standins"},
    "azureml.core.runconfig": {
        "CondaDependencies": "muster.sdk.environment",
        "DEFAULT_CPU_IMAGE": "muster.azureml.standins",
        "DEFAULT_GPU_IMAGE": "muster.azureml.standins",
        "DockerConfiguration": "muster.sdk.runconfig",
        "EnvironmentDefinition": "muster.sdk.environment:Environment",
        "MpiConfiguration": "muster.sdk.runconfig",
        "PyTorchConfiguration": "muster.sdk.runconfig",
        "RunConfiguration": "muster.sdk.runconfig",
        "TensorflowConfiguration": "muster.sdk.runconfig",
    },
    "azureml.core.script_run_config": {"ScriptRunConfig": "muster.sdk.runconfig"},
    "azureml.core.webservice": dict.fromkeys(_SERVICES, "muster.sdk.webservice"),
    "azureml.core.workspace": {"Workspace": "muster.sdk.workspace"},
    "azureml.data": {
        "FileDataset": "muster.sdk.dataset",
        "TabularDataset": "muster.sdk.dataset:FileDataset",
        "OutputFileDatasetConfig": "muster.sdk.dataset",
    },
    "azureml.data.data_reference": {"DataReference": "muster.sdk.datastore:DataPath"},
    "azureml.data.datapath": {"DataPath": "muster.sdk.datastore"},
    "azureml.data.tabular_dataset": {"TabularDataset": "muster.sdk.dataset:FileDataset"},
    "azureml.data.dataset_consumption_config": {"DatasetConsumptionConfig": "muster.sdk.dataset"},
    "azureml.data.dataset_factory": {
        "FileDatasetFactory": "muster.sdk.dataset",
        "TabularDatasetFactory": "muster.sdk.dataset",
    },
    "azureml.data.file_dataset": {"FileDataset": "muster.sdk.dataset"},
    "azureml.data.output_dataset_config": {"OutputFileDatasetConfig": "muster.sdk.dataset"},
    "azureml.exceptions": _EXCEPTIONS,
    "azureml.train": {},
    "azureml.train.dnn": dict.fromkeys(_ESTIMATORS, "muster.sdk.estimators"),
    "azureml.train.estimator": {"Estimator": "muster.sdk.estimators", "Mpi": "muster.sdk.estimators"},
    "azureml.train.sklearn": {"SKLearn": "muster.sdk.estimators"},
    "azureml.telemetry": {"set_diagnostics_collection": "muster.azureml.standins"},
    "azureml.widgets": {"RunDetails": "muster.azureml.widgets"},
    "azure": {},
    "azure.ai": {},
    "azure.ai.ml": {},
    "azure.ai.ml.constants": {},
    "azure.ai.ml.entities": {},
    "azure.core": {},
    "azure.core.exceptions": {
        "ClientAuthenticationError": "muster.errors:MusterError",
        "HttpResponseError": "muster.errors:MusterError",
        "ResourceExistsError": "muster.errors:Conflict",
        "ResourceNotFoundError": "muster.errors:NotFound",
    },
    "azure.identity": {
        "AzureCliCredential": _CREDENTIALS,
        "DefaultAzureCredential": _CREDENTIALS,
        "InteractiveBrowserCredential": _CREDENTIALS,
        "ManagedIdentityCredential": _CREDENTIALS,
    },
}
"""A module's names and where each is found; `module:name` where it is called something else."""

WHOLE = {
    "azure.ai.ml": "muster.ml",
    "azure.ai.ml.constants": "muster.ml.constants",
    "azure.ai.ml.entities": "muster.ml.entities",
}
"""Modules that are one of Muster's under another name."""

SHARED = ("azure", "azure.ai", "azure.core", "azure.core.exceptions")
"""Packages that others live in too: an installed one stays what it is."""

REFUSED: Mapping[str, str] = {
    "azureml.train.hyperdrive": "Muster has no sweeps yet; submit one ScriptRunConfig for each set of parameters",
    "azureml.train.automl": "Muster does not choose models; submit a script of your own",
    "azureml.pipeline": "Muster has no pipelines yet; submit the steps one after the other, and pass their outputs on",
    "azureml.core.image": "images are built from an Environment: Environment.from_dockerfile",
    "azureml.core.keyvault": "keep secrets with `muster secret set NAME`, and use ${{secrets.NAME}} in variables",
    "azureml.opendatasets": "download the data, and give it to the job as an input",
    "azureml.interpret": "it talks to Azure",
}
"""What has no counterpart, by the longest name that fits, and what to do instead."""


def refusal(name: str) -> str:
    """Why a module of Azure ML's cannot be imported here."""
    fitting = [prefix for prefix in REFUSED if name == prefix or name.startswith(f"{prefix}.")]
    reason = REFUSED[max(fitting, key=len)] if fitting else "Muster has no counterpart of it"
    return f"{name} cannot be imported: {reason}. docs/coming-from-azureml.md has every name."
