"""What the names of Azure ML's Python packages stand for in Muster when a job is submitted; ranks have stand-ins."""

import difflib
from typing import Iterable, Mapping

_CORE = {
    "ComputeTarget": "muster.sdk.compute",
    "ContainerRegistry": "muster.azureml.standins",
    "Dataset": "muster.sdk.data.dataset",
    "Datastore": "muster.sdk.data.datastore",
    "Environment": "muster.sdk.environment",
    "Experiment": "muster.sdk.experiment",
    "Keyvault": "muster.sdk.keyvault",
    "Model": "muster.sdk.model",
    "Run": "muster.sdk.run",
    "RunConfiguration": "muster.sdk.runconfig",
    "ScriptRunConfig": "muster.sdk.runconfig",
    "VERSION": "muster.azureml.standins",
    "Webservice": "muster.sdk.webservice",
    "Workspace": "muster.sdk.workspace",
    "__version__": "muster.azureml.standins:VERSION",
    "get_run": "muster.azureml.standins",
}
_CREDENTIALS = "muster.azureml.standins"
_ANY_ERROR = "muster.errors:MusterError"
_EXCEPTIONS = {
    "ActivityFailedException": "muster.errors:RunFailed",
    "AuthenticationException": _ANY_ERROR,
    "AzureMLException": _ANY_ERROR,
    "ComputeTargetException": "muster.sdk.compute",
    "DatasetExecutionError": _ANY_ERROR,
    "ExperimentExecutionException": _ANY_ERROR,
    "ExperimentNotFoundException": "muster.errors:NotFound",
    "HttpOperationError": _ANY_ERROR,
    "ImageException": _ANY_ERROR,
    "ModelNotFoundException": "muster.errors:NotFound",
    "ModelPathNotFoundException": "muster.errors:NotFound",
    "OptionalDependencyMissingException": "muster.errors:MissingExtra",
    "ProjectSystemException": _ANY_ERROR,
    "RunConfigurationException": "muster.errors:JobError",
    "RunEnvironmentException": _ANY_ERROR,
    "ServiceException": _ANY_ERROR,
    "SnapshotException": _ANY_ERROR,
    "TrainingException": _ANY_ERROR,
    "UserErrorException": "muster.errors:UserError",
    "WebserviceException": _ANY_ERROR,
    "WorkspaceException": _ANY_ERROR,
}
_IMAGES = {"DEFAULT_CPU_IMAGE": "muster.azureml.standins", "DEFAULT_GPU_IMAGE": "muster.azureml.standins"}

_SERVICES = ("AciWebservice", "AksWebservice", "LocalWebservice", "Webservice")
_ESTIMATORS = ("Gloo", "Keras", "Mpi", "Nccl", "ParameterServer", "PyTorch", "TensorFlow")

MODULES: Mapping[str, Mapping[str, str]] = {
    "azureml": {},
    "azureml.core": _CORE,
    "azureml.core.authentication": dict.fromkeys(
        (
            "ArcTokenAuthentication",
            "AzureCliAuthentication",
            "InteractiveLoginAuthentication",
            "MsiAuthentication",
            "ServicePrincipalAuthentication",
            "TokenAuthentication",
        ),
        f"{_CREDENTIALS}:NoCredential",
    ),
    "azureml.core.compute": {
        "AmlCompute": "muster.sdk.compute",
        "ComputeTarget": "muster.sdk.compute",
    },
    "azureml.core.compute_target": {
        "ComputeTarget": "muster.sdk.compute",
        "ComputeTargetException": "muster.sdk.compute",
    },
    "azureml.core.conda_dependencies": {"CondaDependencies": "muster.sdk.conda"},
    "azureml.core.container_registry": {"ContainerRegistry": "muster.azureml.standins"},
    "azureml.core.dataset": {"Dataset": "muster.sdk.data.dataset"},
    "azureml.core.datastore": {"Datastore": "muster.sdk.data.datastore"},
    "azureml.core.environment": {
        **_IMAGES,
        "CondaDependencies": "muster.sdk.conda",
        "DockerBuildContext": "muster.sdk.environment",
        "DockerSection": "muster.sdk.environment",
        "Environment": "muster.sdk.environment",
        "PythonSection": "muster.sdk.environment",
    },
    "azureml.core.experiment": {"Experiment": "muster.sdk.experiment"},
    "azureml.core.keyvault": {"Keyvault": "muster.sdk.keyvault"},
    "azureml.core.model": {"InferenceConfig": "muster.sdk.webservice", "Model": "muster.sdk.model"},
    "azureml.core.resource_configuration": {"ResourceConfiguration": "muster.azureml.standins"},
    "azureml.core.run": {
        "Run": "muster.sdk.run",
        "_OfflineRun": "muster.runtime.run:OfflineRun",
        "_SubmittedRun": "muster.runtime.run:Run",
        "get_run": "muster.azureml.standins",
    },
    "azureml.core.runconfig": {
        **_IMAGES,
        "CondaDependencies": "muster.sdk.conda",
        "DataReferenceConfiguration": "muster.azureml.standins",
        "DockerConfiguration": "muster.sdk.runconfig",
        "DockerEnvironment": "muster.sdk.environment:DockerSection",
        "EnvironmentDefinition": "muster.sdk.environment:Environment",
        "MpiConfiguration": "muster.sdk.runconfig",
        "PyTorchConfiguration": "muster.sdk.runconfig",
        "PythonEnvironment": "muster.sdk.environment:PythonSection",
        "RunConfiguration": "muster.sdk.runconfig",
        "TensorflowConfiguration": "muster.sdk.runconfig",
    },
    "azureml.core.script_run": {"ScriptRun": "muster.sdk.run:Run"},
    "azureml.core.script_run_config": {"ScriptRunConfig": "muster.sdk.runconfig"},
    "azureml.core.webservice": dict.fromkeys(_SERVICES, "muster.sdk.webservice"),
    "azureml.core.webservice.aci": {"AciWebservice": "muster.sdk.webservice"},
    "azureml.core.webservice.aks": {"AksWebservice": "muster.sdk.webservice"},
    "azureml.core.webservice.webservice": {
        "Webservice": "muster.sdk.webservice",
        "WebserviceException": _ANY_ERROR,
    },
    "azureml.core.workspace": {"Workspace": "muster.sdk.workspace"},
    "azureml.data": {
        "DataType": "muster.azureml.standins",
        "FileDataset": "muster.sdk.data.dataset",
        "OutputFileDatasetConfig": "muster.sdk.data.dataset",
        "TabularDataset": "muster.sdk.data.dataset:FileDataset",
    },
    "azureml.data.abstract_dataset": {"AbstractDataset": "muster.sdk.data.dataset:FileDataset"},
    "azureml.data.azure_storage_datastore": {
        "AzureBlobDatastore": "muster.sdk.data.datastore:Datastore",
        "AzureFileDatastore": "muster.sdk.data.datastore:Datastore",
    },
    "azureml.data.data_reference": {"DataReference": "muster.sdk.data.datastore"},
    "azureml.data.datapath": {"DataPath": "muster.sdk.data.datastore"},
    "azureml.data.tabular_dataset": {"TabularDataset": "muster.sdk.data.dataset:FileDataset"},
    "azureml.data.dataset_consumption_config": {"DatasetConsumptionConfig": "muster.sdk.data.dataset"},
    "azureml.data.dataset_error_handling": {
        "DatasetExecutionError": _ANY_ERROR,
        "DatasetValidationError": _ANY_ERROR,
    },
    "azureml.data.dataset_factory": {
        "DataType": "muster.azureml.standins",
        "FileDatasetFactory": "muster.sdk.data.dataset",
        "TabularDatasetFactory": "muster.sdk.data.dataset",
    },
    "azureml.data.file_dataset": {"FileDataset": "muster.sdk.data.dataset"},
    "azureml.data.output_dataset_config": {"OutputFileDatasetConfig": "muster.sdk.data.dataset"},
    "azureml.dataprep": {},
    "azureml.exceptions": _EXCEPTIONS,
    "azureml.mlflow": {"get_portal_url": "muster.azureml.standins"},
    "azureml.tensorboard": {"Tensorboard": "muster.azureml.tensorboard"},
    "azureml.train": {},
    "azureml.train.dnn": dict.fromkeys(_ESTIMATORS, "muster.sdk.estimators"),
    "azureml.train.estimator": {"Estimator": "muster.sdk.estimators", "Mpi": "muster.sdk.estimators"},
    "azureml.train.sklearn": {"SKLearn": "muster.sdk.estimators"},
    "azureml.telemetry": {"set_diagnostics_collection": "muster.azureml.standins"},
    "azureml.widgets": {"RunDetails": "muster.azureml.widgets"},
    "azure": {},
    "azure.ai": {},
    "azure.ai.ml": dict.fromkeys(("VERSION", "__version__"), "muster.azureml.standins:VERSION_2"),
    "azure.ai.ml.constants": {},
    "azure.ai.ml.entities": {"Datastore": "muster.ml.datastores:AzureBlobDatastore", "Job": "muster.ml.jobs"},
    "azure.ai.ml.identity": {
        "AzureMLOnBehalfOfCredential": f"{_CREDENTIALS}:NoCredential",
        "CredentialUnavailableError": _ANY_ERROR,
    },
    "azure.ai.ml.exceptions": {
        "JobException": _ANY_ERROR,
        "MlException": _ANY_ERROR,
        "UserErrorException": "muster.errors:UserError",
        "ValidationException": "muster.errors:JobError",
    },
    "azure.core": {},
    "azure.core.exceptions": {
        "ClientAuthenticationError": "muster.errors:MusterError",
        "HttpResponseError": "muster.errors:MusterError",
        "ResourceExistsError": "muster.errors:Conflict",
        "ResourceNotFoundError": "muster.errors:NotFound",
    },
    "azure.identity": {
        **dict.fromkeys(("AuthenticationRequiredError", "CredentialUnavailableError"), _ANY_ERROR),
        "get_bearer_token_provider": _CREDENTIALS,
        **dict.fromkeys(
            (
                "AzureCliCredential",
                "AzureDeveloperCliCredential",
                "AzurePowerShellCredential",
                "CertificateCredential",
                "ChainedTokenCredential",
                "ClientSecretCredential",
                "DefaultAzureCredential",
                "DeviceCodeCredential",
                "EnvironmentCredential",
                "InteractiveBrowserCredential",
                "ManagedIdentityCredential",
                "SharedTokenCacheCredential",
                "UsernamePasswordCredential",
                "VisualStudioCodeCredential",
                "WorkloadIdentityCredential",
            ),
            f"{_CREDENTIALS}:NoCredential",
        ),
    },
}
"""A module's names and where each is found; `module:name` if it has another name there."""

WHOLE = {
    "azure.ai.ml": "muster.ml",
    "azure.ai.ml.constants": "muster.ml.constants",
    "azure.ai.ml.entities": "muster.ml.entities",
}
"""Modules that stand for a whole module of Muster."""

SHARED = ("azure", "azure.ai", "azure.core", "azure.core.exceptions")
"""Packages that other software also uses: an installed one is kept."""

_SWEEPS = "Muster has no sweeps yet; submit one job for each set of parameters"
_PIPELINES = "Muster has no pipelines yet; submit the steps one after the other, and pass their outputs on"
_OTHER_COMPUTE = (
    "machines of that kind cannot be added; a cluster of Muster's own is AmlCompute, others `muster cluster create`"
)
_ONE_MACHINE = "a machine to work on is no part of Muster; submit to compute_target='local' or to an AmlCompute"

_SCHEDULES = "Muster has no schedules; let cron or a CI system start `muster run`"
_WORKSPACE = "a workspace is a folder, or a team's server: `muster init`, `muster login`"
_AZURES_OWN = "it is a service of Azure's"
_RAY = "start Ray by the command itself, once on each node: PyTorchDistribution gives NODE_RANK and MASTER_ADDR"
_FEATURES = "there is no feature store behind Muster; give the data to a job as an input"

REFUSED: Mapping[str, str] = {
    "azureml.train.hyperdrive": _SWEEPS,
    "azureml.train.automl": "Muster does not choose models; submit a script of your own",
    "azureml.automl": "Muster does not choose models; submit a script of your own",
    "azureml.pipeline": _PIPELINES,
    "azureml.contrib.pipeline": _PIPELINES,
    "azureml.contrib": "it was never more than a preview; submit a script with ScriptRunConfig",
    "azureml.core.image": "images are built from an Environment: Environment.from_dockerfile",
    "azureml.core.Image": "images are built from an Environment: Environment.from_dockerfile",
    "azureml.core.LinkedService": "it links services of Azure; register storage with Datastore.register_url",
    "azureml.core.databricks": "there is no Databricks behind Muster; submit a script with ScriptRunConfig",
    "azureml.core.compute.AksCompute": "services run on Muster's own nodes; leave deployment_target out",
    "azureml.core.compute.ComputeInstance": _ONE_MACHINE,
    "azureml.core.compute.RemoteCompute": _OTHER_COMPUTE,
    "azureml.core.compute.BatchCompute": _OTHER_COMPUTE,
    "azureml.core.compute.DatabricksCompute": _OTHER_COMPUTE,
    "azureml.core.compute.DataFactoryCompute": _OTHER_COMPUTE,
    "azureml.core.compute.HDInsightCompute": _OTHER_COMPUTE,
    "azureml.core.compute.KubernetesCompute": _OTHER_COMPUTE,
    "azureml.core.runconfig.ParallelTaskConfiguration": "start one job with several ranks: PyTorchConfiguration",
    "azureml.core.webservice.AksEndpoint": "traffic is split between deployments: docs/endpoints.md",
    "azureml.data.LinkTabularOutputDatasetConfig": "use OutputFileDatasetConfig: files stay files",
    "azureml.data.LinkFileOutputDatasetConfig": "use OutputFileDatasetConfig",
    "azureml.data.HDFSOutputDatasetConfig": "there is no Spark behind Muster; use OutputFileDatasetConfig",
    "azureml.train.dnn.Chainer": "there is no Chainer for a Python of today; give Estimator your packages",
    "azureml.opendatasets": "download the data, and give it to the job as an input",
    "azureml.interpret": "it talks to Azure; log what you explain with run.upload_file",
    "azureml.explain": "it talks to Azure; log what you explain with run.upload_file",
    "azureml.datadrift": "compare two datasets in a script of your own",
    "azureml.fairlearn": "it talks to Azure; log what you measure with run.log",
    "azure.ai.ml.sweep": _SWEEPS,
    "azure.ai.ml.dsl": _PIPELINES,
    "azure.ai.ml.automl": "Muster does not choose models; submit a script of your own",
    "azure.ai.ml.spark": "there is no Spark behind Muster; submit a command",
    "azure.ai.ml.parallel": "Muster has no parallel jobs of v2 yet; `muster score` runs a model over a folder",
    "azure.ai.ml.RayDistribution": _RAY,
    "azure.ai.ml.entities.RayDistribution": _RAY,
    "azure.ai.ml.entities.ComputeInstance": _ONE_MACHINE,
    "azure.ai.ml.entities.KubernetesCompute": _OTHER_COMPUTE,
    "azure.ai.ml.entities.PipelineJob": _PIPELINES,
    "azure.ai.ml.entities.SweepJob": _SWEEPS,
    "azure.ai.ml.entities.CommandComponent": "load_component(FILE)(input=…) or command() gives a job",
    "azure.ai.ml.entities.ParallelComponent": _PIPELINES,
    "azure.ai.ml.entities.PipelineComponent": _PIPELINES,
    "azure.ai.ml.entities.PipelineComponentBatchDeployment": _PIPELINES,
    **dict.fromkeys(
        (
            f"azure.ai.ml.entities.{name}"
            for name in ("JobSchedule", "Schedule", "CronTrigger", "RecurrenceTrigger", "RecurrencePattern")
        ),
        _SCHEDULES,
    ),
    "azure.ai.ml.constants.TimeZone": _SCHEDULES,
    "azure.ai.ml.entities.Workspace": _WORKSPACE,
    "azure.ai.ml.entities.Hub": _WORKSPACE,
    "azure.ai.ml.entities.Project": _WORKSPACE,
    "azure.ai.ml.entities.Registry": _AZURES_OWN,
    "azure.ai.ml.entities.WorkspaceConnection": _AZURES_OWN,
    "azure.ai.ml.entities.FeatureStore": _FEATURES,
    "azure.ai.ml.entities.FeatureSet": _FEATURES,
    "azure.ai.ml.entities.FeatureStoreEntity": _FEATURES,
    "azure.ai.ml.entities.VirtualMachineCompute": _OTHER_COMPUTE,
    "azure.ai.ml.entities.SynapseSparkCompute": _OTHER_COMPUTE,
    "azure.ai.ml.entities.AzureDataLakeGen1Datastore": "Azure ended this kind of storage in 2024; use Data Lake Gen2",
    "azure.ai.ml.entities.OneLakeDatastore": "register what fsspec knows: `muster datastore create NAME --url URL`",
    "azure.ai.ml.entities.CertificateConfiguration": (
        "certificates open no storage here; use ServicePrincipalConfiguration, a key or a SAS"
    ),
    "azure.ai.ml.entities.DataImport": "download the data, and give it to the job as an input",
    "azure.ai.ml.entities.ModelPackage": "an endpoint serves a model as it is; docs/endpoints.md",
    "azure.ai.ml.entities.ServerlessEndpoint": _AZURES_OWN,
    "azure.ai.ml.entities.MarketplaceSubscription": _AZURES_OWN,
    "azure.ai.ml.import_job": "download the data, and give it to the job as an input",
    "azure.ai.ml.load_workspace": _WORKSPACE,
    "azure.ai.ml.load_schedule": _SCHEDULES,
    "azure.ai.ml.load_feature_set": _FEATURES,
    "azure.ai.ml.load_feature_store": _FEATURES,
    "azure.ai.ml.load_feature_store_entity": _FEATURES,
    **dict.fromkeys(
        (
            f"azure.ai.ml.load_{name}"
            for name in (
                *("registry", "connection", "workspace_connection", "index", "marketplace_subscription"),
                *("serverless_endpoint", "capability_host"),
            )
        ),
        _AZURES_OWN,
    ),
    "azure.ai.ml.load_model_package": "an endpoint serves a model as it is; docs/endpoints.md",
}
"""Names without a counterpart, and what to do instead; the longest name that fits is used."""


def refused_module(name: str) -> bool:
    """Whether a module has no counterpart, but advice on what to do instead."""
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in REFUSED)


_MOST_SHOWN = 20
_EVERY_NAME = "docs/coming-from-azureml.md has every name"


def refusal(name: str, known: Iterable[str] = (), verb: str = "imported") -> str:
    """Why a module or a name of Azure ML's cannot be imported here; `known` are the names that its module has."""
    fitting = [prefix for prefix in REFUSED if name == prefix or name.startswith(f"{prefix}.")]
    reason = REFUSED[max(fitting, key=len)] if fitting else "Muster has no counterpart of it"
    shown = sorted(other for other in known if not other.startswith("_"))
    if len(shown) > _MOST_SHOWN:
        shown = difflib.get_close_matches(name.rpartition(".")[2], shown, n=3)
    others = ", ".join(shown)
    beside = f"; {name.rpartition('.')[0]} has {others}" if others and not fitting else ""
    return f"{name} cannot be {verb}: {reason}{beside}. {_EVERY_NAME}."
