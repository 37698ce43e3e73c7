"""Entities that v2 scripts create: environments, data, models, clusters, services."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.ml.batch_entities import (
    BatchDeployment,
    BatchEndpoint,
    BatchRetrySettings,
    ModelBatchDeployment,
    ModelBatchDeploymentSettings,
)
from muster.ml.command import Command, MpiDistribution, PyTorchDistribution, TensorFlowDistribution
from muster.ml.datastores import (
    AccountKeyConfiguration,
    AzureBlobDatastore,
    AzureDataLakeGen2Datastore,
    AzureFileDatastore,
    NoneCredentialConfiguration,
    SasTokenConfiguration,
    ServicePrincipalConfiguration,
)
from muster.ml.online_entities import (
    CodeConfiguration,
    DataCollector,
    DefaultScaleSettings,
    DeploymentCollection,
    Described,
    EndpointAuthKeys,
    EndpointAuthToken,
    KubernetesOnlineDeployment,
    KubernetesOnlineEndpoint,
    ManagedOnlineDeployment,
    ManagedOnlineEndpoint,
    OnlineRequestSettings,
    ProbeSettings,
    RequestLogging,
    TargetUtilizationScaleSettings,
)
from muster.wire.codec import Json


@dataclass(frozen=True)
class BuildContext:
    """A folder with a Dockerfile."""

    path: str
    dockerfile_path: str | None = None

    def described(self) -> dict[str, Json]:
        return {"path": os.fspath(self.path), "dockerfile_path": self.dockerfile_path}


class Environment:
    """The environment of a job's ranks."""

    def __init__(
        self,
        *,
        name: str | None = None,
        version: str | None = None,
        image: str | None = None,
        build: BuildContext | None = None,
        conda_file: Any = None,
        description: str | None = None,
        tags: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.name = name
        self.version = version
        self.id = ""
        self.tags = dict(tags or {})
        self.image: Any = image
        self.build = build
        self.conda_file = os.fspath(conda_file) if isinstance(conda_file, os.PathLike) else conda_file
        self.description = description
        self.more: dict[str, Json] = kwargs

    @classmethod
    def of(cls, described: Mapping[str, Json]) -> Environment:
        """From the value of `environment` in a job file."""
        made = cls()
        made.more = dict(described)
        name = described.get("name")
        made.name = name if isinstance(name, str) else None
        return made

    def described(self) -> dict[str, Json]:
        """The environment as in a job file; one without a source is only a name."""
        build = self.build.described() if isinstance(self.build, BuildContext) else self.build
        plain: dict[str, Json] = {"name": self.name, "image": self.image, "build": build, "conda_file": self.conda_file}
        return {key: value for key, value in {**plain, **self.more}.items() if value is not None}


@dataclass
class Data:
    """A data asset: a file or folder in a version that never changes."""

    path: str
    type: str = "uri_folder"
    name: str = ""
    version: str | None = None
    description: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    id: str = ""


@dataclass
class JobResourceConfiguration:
    """How many of a cluster's resources a job gets."""

    instance_count: int | None = None
    instance_type: str | None = None
    shm_size: str | None = None
    docker_args: Any = None
    properties: Any = None
    locations: Any = None
    max_instance_count: int | None = None

    def described(self) -> dict[str, Json]:
        return {key: value for key, value in vars(self).items() if value is not None}


ResourceConfiguration = JobResourceConfiguration


@dataclass
class CommandJobLimits:
    """After how long a job is stopped."""

    timeout: int | None = None

    def described(self) -> dict[str, Json]:
        return {"timeout": self.timeout}


@dataclass
class QueueSettings:
    """How a job is queued."""

    job_tier: str | None = None
    priority: str | None = None

    def described(self) -> dict[str, Json]:
        return {key: value for key, value in vars(self).items() if value is not None}


@dataclass
class UserIdentityConfiguration:
    """The job's identity in Azure; ignored with a notice."""

    client_id: str | None = None
    type: str = "user_identity"

    def described(self) -> dict[str, Json]:
        return {"type": self.type}


@dataclass
class ManagedIdentityConfiguration(UserIdentityConfiguration):
    """The job's identity in Azure; ignored with a notice."""

    type: str = "managed"


@dataclass
class AmlTokenConfiguration(UserIdentityConfiguration):
    """The job's identity in Azure; ignored with a notice."""

    type: str = "aml_token"


@dataclass
class Model:
    """A model: a file or folder."""

    name: str
    path: str
    type: str = "custom_model"
    version: str | None = None
    description: str | None = None
    tags: dict[str, str] = field(default_factory=dict)

    def described(self) -> dict[str, Json]:
        """The model as in a deployment's file."""
        return {"path": self.path}


class AmlCompute:
    """A cluster that adds and removes nodes as needed."""

    type = "amlcompute"
    location = "local"

    def __init__(
        self,
        *,
        name: str,
        size: str = "",
        min_instances: int = 0,
        max_instances: int = 1,
        idle_time_before_scale_down: int | None = None,
        tier: str = "dedicated",
        **kwargs: Any,
    ) -> None:
        self.name = name
        self.size = size
        self.min_instances = min_instances
        self.max_instances = max_instances
        self.idle_time_before_scale_down = idle_time_before_scale_down
        self.tier = tier
        self.id = name
        self.description: str | None = kwargs.get("description")
        self.tags: dict[str, str] = dict(kwargs.get("tags") or {})
        self.provisioning_state = str(kwargs.get("provisioning_state", "Succeeded"))


class ResourceRequirementsSettings(Described):
    """What a replica requests (`requests`), and its upper limits (`limits`)."""


class ResourceSettings(Described):
    """`cpu`, `memory` and `gpu` of a replica."""

    def __init__(self, *, cpu: str | None = None, memory: str | None = None, gpu: str | None = None) -> None:
        super().__init__(cpu=cpu, memory=memory, **{"nvidia.com/gpu": gpu})


class IdentityConfiguration(Described):
    """The identity of a cluster or an endpoint in Azure; there are no Azure identities here."""


class AmlComputeSshSettings(Described):
    """SSH access to Azure's nodes; here `muster shell` opens a shell on the nodes of a run."""


class NetworkSettings(Described):
    """A network in Azure."""


OnlineEndpoint = ManagedOnlineEndpoint
OnlineDeployment = ManagedOnlineDeployment


class JobService:
    """A port on rank 0's node that people reach through the server."""

    kind = "custom"

    def __init__(self, *, port: int | None = None, **kwargs: Any) -> None:
        self.port = port
        self.more: dict[str, Json] = kwargs

    def described(self) -> dict[str, Json]:
        kind = self.more.get("type") or self.more.get("job_service_type") or self.kind
        more = {key: value for key, value in self.more.items() if key not in ("type", "job_service_type")}
        return {"type": kind, **({"port": self.port} if self.port else {}), **more}


class SshJobService(JobService):
    """A shell on rank 0's node."""

    kind = "ssh"


class TensorBoardJobService(JobService):
    """TensorBoard on rank 0's node."""

    kind = "tensor_board"


class JupyterLabJobService(JobService):
    """JupyterLab on rank 0's node."""

    kind = "jupyter_lab"


class VsCodeJobService(JobService):
    """An editor that Azure starts; ignored with a notice."""

    kind = "vs_code"


__all__ = [
    "AccountKeyConfiguration",
    "AmlCompute",
    "AmlComputeSshSettings",
    "AmlTokenConfiguration",
    "AzureBlobDatastore",
    "AzureDataLakeGen2Datastore",
    "AzureFileDatastore",
    "BatchDeployment",
    "BatchEndpoint",
    "BatchRetrySettings",
    "BuildContext",
    "CodeConfiguration",
    "Command",
    "CommandJobLimits",
    "Data",
    "DataCollector",
    "DefaultScaleSettings",
    "DeploymentCollection",
    "EndpointAuthKeys",
    "EndpointAuthToken",
    "Environment",
    "IdentityConfiguration",
    "JobResourceConfiguration",
    "JobService",
    "JupyterLabJobService",
    "KubernetesOnlineDeployment",
    "KubernetesOnlineEndpoint",
    "ManagedIdentityConfiguration",
    "ManagedOnlineDeployment",
    "ManagedOnlineEndpoint",
    "Model",
    "ModelBatchDeployment",
    "ModelBatchDeploymentSettings",
    "MpiDistribution",
    "NetworkSettings",
    "NoneCredentialConfiguration",
    "OnlineDeployment",
    "OnlineEndpoint",
    "OnlineRequestSettings",
    "ProbeSettings",
    "PyTorchDistribution",
    "QueueSettings",
    "RequestLogging",
    "ResourceConfiguration",
    "ResourceRequirementsSettings",
    "ResourceSettings",
    "SasTokenConfiguration",
    "ServicePrincipalConfiguration",
    "SshJobService",
    "TargetUtilizationScaleSettings",
    "TensorBoardJobService",
    "TensorFlowDistribution",
    "UserIdentityConfiguration",
    "VsCodeJobService",
]
