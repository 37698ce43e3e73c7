"""`MLClient`: jobs, environments, data, models and clusters of the workspace, under v2's names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from muster.client.models import Models as CalledModels
from muster.client.models import new_model
from muster.client.storage import Storage
from muster.client.submit import register_environment
from muster.errors import JobError
from muster.job.rules import is_address
from muster.ml import entities
from muster.ml.batch import BatchDeployments, BatchEndpoints
from muster.ml.batch_entities import BatchDeployment, BatchEndpoint
from muster.ml.command import Command, Component
from muster.ml.datastores import AzureBlobDatastore, Datastores
from muster.ml.jobs import Job, Jobs
from muster.ml.online import OnlineDeployments, OnlineEndpoints
from muster.ml.online_entities import ManagedOnlineDeployment, ManagedOnlineEndpoint
from muster.ml.operations import Done, Operations
from muster.models.references import RunPath, is_model_input, parse
from muster.sdk import compute, model
from muster.sdk.notices import tell
from muster.sdk.workspace import Workspace
from muster.storage.addresses import DEFAULT_DATASTORE
from muster.wire.clusters import ClusterView
from muster.wire.data.assets import AssetView, NewAsset
from muster.wire.environments import EnvironmentView
from muster.wire.models import MODEL_TYPES, ModelChanges

_REFUSED = {
    "schedules": "there are no schedules; let cron or a CI system start `muster run`",
    **dict.fromkeys(
        ("registries", "connections", "workspace_connections", "indexes", "serverless_endpoints"),
        "it is a service of Azure's",
    ),
    **dict.fromkeys(
        ("feature_sets", "feature_stores", "feature_store_entities"),
        "there is no feature store; give the data to a job as an input",
    ),
}


class MLClient:
    """The client of a workspace; credential, subscription and resource group are not needed."""

    def __init__(
        self,
        credential: Any = None,
        subscription_id: str | None = None,
        resource_group_name: str | None = None,
        workspace_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.workspace = Workspace.from_config()
        self.subscription_id = subscription_id or ""
        self.resource_group_name = resource_group_name or ""
        if workspace_name and not workspace_name.startswith("<") and workspace_name != self.workspace.name:
            tell(f"workspace_name={workspace_name!r}: the workspace here is {self.workspace.name!r}, and is used")

    @classmethod
    def from_config(cls, credential: Any = None, *, path: str | Path | None = None, **kwargs: Any) -> MLClient:
        """The workspace of a folder, or the one of an Azure `config.json` in it."""
        made = cls.__new__(cls)
        made.workspace = Workspace.from_config(path)
        made.subscription_id = made.resource_group_name = ""
        return made

    @property
    def workspace_name(self) -> str:
        return self.workspace.name

    @cached_property
    def jobs(self) -> Jobs:
        return Jobs(self.workspace)

    @cached_property
    def environments(self) -> Environments:
        return Environments(self.workspace)

    @cached_property
    def data(self) -> DataAssets:
        return DataAssets(self.workspace)

    @cached_property
    def models(self) -> Models:
        return Models(self.workspace)

    @cached_property
    def compute(self) -> Clusters:
        return Clusters(self.workspace)

    @cached_property
    def workspaces(self) -> Workspaces:
        return Workspaces(self.workspace)

    @cached_property
    def datastores(self) -> Datastores:
        return Datastores(self.workspace)

    @property
    def components(self) -> Components:
        return Components()

    @cached_property
    def online_endpoints(self) -> OnlineEndpoints:
        return OnlineEndpoints(self.workspace)

    @cached_property
    def online_deployments(self) -> OnlineDeployments:
        return OnlineDeployments(self.workspace)

    @cached_property
    def batch_endpoints(self) -> BatchEndpoints:
        return BatchEndpoints(self.workspace)

    @cached_property
    def batch_deployments(self) -> BatchDeployments:
        return BatchDeployments(self.workspace)

    def __getattr__(self, name: str) -> Any:
        """Refuse groups of calls without a counterpart, by name."""
        if name in _REFUSED:
            raise JobError(f"MLClient.{name}: {_REFUSED[name]}", "docs/coming-from-azureml.md has every name.")
        raise AttributeError(f"MLClient has no {name!r}")

    def begin_create_or_update(self, entity: Any, **kwargs: Any) -> Any:
        """Create or change an endpoint, a deployment or a cluster."""
        if isinstance(entity, ManagedOnlineEndpoint):
            return self.online_endpoints.begin_create_or_update(entity, **kwargs)
        if isinstance(entity, ManagedOnlineDeployment):
            return self.online_deployments.begin_create_or_update(entity, **kwargs)
        if isinstance(entity, BatchEndpoint):
            return self.batch_endpoints.begin_create_or_update(entity, **kwargs)
        if isinstance(entity, BatchDeployment):
            return self.batch_deployments.begin_create_or_update(entity, **kwargs)
        if isinstance(entity, entities.AmlCompute):
            return self.compute.begin_create_or_update(entity)
        raise JobError(f"a {type(entity).__name__} cannot be created", "Endpoints, deployments and clusters can.")

    def create_or_update(self, entity: Any, **kwargs: Any) -> Any:
        """Submit a job, or register an environment, data, a model or a datastore."""
        if isinstance(entity, Component):
            return self.components.create_or_update(entity)
        if isinstance(entity, (Command, Job)):
            return self.jobs.create_or_update(entity, **kwargs)
        if isinstance(entity, entities.Environment):
            return self.environments.create_or_update(entity)
        if isinstance(entity, entities.Data):
            return self.data.create_or_update(entity)
        if isinstance(entity, entities.Model):
            return self.models.create_or_update(entity)
        if isinstance(entity, AzureBlobDatastore):
            return self.datastores.create_or_update(entity)
        hint = "Jobs, environments, data, models and datastores can; endpoints by begin_create_or_update."
        raise JobError(f"a {type(entity).__name__} cannot be created", hint)


class Components(Operations):
    """`ml_client.components`: there is no registry of components; scripts use those that they read from files."""

    def create_or_update(self, component: Component, **kwargs: Any) -> Component:
        """Return the same component, which is not stored."""
        tell(f"the component {component.name or 'without a name'} is used as it is: components are run, not registered")
        return component

    def get(self, name: str, version: str | None = None, label: str | None = None) -> Component:
        raise JobError("components are run, not registered", "load_component(FILE)(input=…) gives a job.")


class Environments(Operations):
    """`ml_client.environments`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def create_or_update(self, environment: entities.Environment) -> entities.Environment:
        """Register an environment under its name."""
        job = Command({"command": "true", "environment": environment}).checked()
        if environment.name is None:
            raise JobError("the environment has no name", "Give Environment(name=…).")
        return _environment(register_environment(self._workspace.client, environment.name, job.spec, job.base_dir))

    def get(self, name: str, version: str | None = None, label: str | None = None) -> entities.Environment:
        return _environment(self._workspace.client.environment(name, version))

    def list(self, name: str | None = None, **kwargs: Any) -> Iterator[entities.Environment]:
        """The newest version of each environment."""
        return (_environment(view) for view in self._workspace.client.environments() if name in (None, view.name))


def _environment(view: EnvironmentView) -> entities.Environment:
    made = entities.Environment.of({**view.spec, "name": view.name})
    made.version, made.id = str(view.version), f"azureml:{view.name}:{view.version}"
    made.image, made.conda_file = view.spec.get("image"), view.spec.get("conda_file")
    return made


class DataAssets(Operations):
    """`ml_client.data`."""

    def __init__(self, workspace: Workspace) -> None:
        self._storage = Storage(workspace.client.calls)

    def create_or_update(self, data: entities.Data) -> entities.Data:
        """Register a file, a folder or an address as the next version of a data asset."""
        asset = NewAsset(data.name, "", data.version, description=data.description, tags=data.tags)
        if "://" in data.path or data.path.startswith("azureml:"):
            body = NewAsset(data.name, data.path, data.version, data.type, tags=data.tags)
            return _data(self._storage.create_asset(body))
        return _data(self._storage.upload_asset(Path(data.path).expanduser(), asset, DEFAULT_DATASTORE))

    def get(self, name: str, version: str | None = None, label: str | None = None) -> entities.Data:
        return _data(self._storage.asset(name, version))

    def list(self, name: str | None = None, **kwargs: Any) -> Iterator[entities.Data]:
        """Every version, the newest first."""
        return (_data(view) for view in self._storage.assets(name))

    def archive(self, name: str, version: str | None = None, label: str | None = None) -> None:
        """Remove a version, or the newest, from lists."""
        self._storage.archive_asset(name, version or self._storage.asset(name).version, True)

    def restore(self, name: str, version: str) -> None:
        """Show a version in lists again."""
        self._storage.archive_asset(name, version, False)


def _data(view: AssetView) -> entities.Data:
    return entities.Data(
        path=view.address,
        type=view.type,
        name=view.name,
        version=view.version,
        description=view.description,
        tags=dict(view.tags),
        id=f"azureml:{view.name}:{view.version}",
    )


class Models(Operations):
    """`ml_client.models`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def create_or_update(self, wanted: entities.Model) -> model.Model:
        """Register a local file or folder, files of a run (`runs:/…`), or files in a datastore."""
        models = CalledModels(self._workspace.client.calls)
        kind = next((known for known in MODEL_TYPES if known == wanted.type), None)
        given = new_model(
            wanted.name,
            kind=kind if wanted.type != "custom_model" else None,
            version=None if wanted.version is None else int(wanted.version),
            description=wanted.description,
            tags={**wanted.tags},
        )
        if not is_address(wanted.path):
            view = models.upload(Path(wanted.path).expanduser(), given)
        elif is_model_input(wanted.path, "") and isinstance(found := parse(wanted.path), RunPath):
            view = models.register(replace(given, path=found.path, run_id=self._workspace.client.run(found.run).id))
        else:
            last = wanted.path.rstrip("/").rpartition("/")[2]
            view = models.register(replace(given, path=last, address=wanted.path))
        return model.Model._of(self._workspace, view)

    def get(self, name: str, version: str | None = None, label: str | None = None) -> model.Model:
        alias = label if label != "latest" else None
        return model.Model(self._workspace, name, version=None if version is None else int(version), alias=alias)

    def list(self, name: str | None = None, **kwargs: Any) -> Iterator[model.Model]:
        """The newest version of each model, or all versions of one."""
        return iter(model.Model.list(self._workspace, name, latest=name is None))

    def download(self, name: str, version: str, download_path: str | Path = ".") -> None:
        """A version's file or folder below `download_path`/NAME."""
        self.get(name, version).download(str(Path(download_path) / name), exist_ok=True)

    def archive(self, name: str, version: str | None = None, **kwargs: Any) -> None:
        """Give a version the stage `Archived`."""
        self.get(name, version)._change(ModelChanges(stage="Archived"))

    def restore(self, name: str, version: str | None = None, **kwargs: Any) -> None:
        """Remove the stage `Archived` from a version."""
        self.get(name, version)._change(ModelChanges(stage="None"))


class Workspaces(Operations):
    """`ml_client.workspaces`: only the workspace of this client."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def get(self, name: str | None = None, **kwargs: Any) -> WorkspaceView:
        if name and name != self._workspace.name:
            tell(f"{name!r}: the workspace here is {self._workspace.name!r}, and is shown")
        found = self._workspace
        return WorkspaceView(found.name, found.location, found.resource_group, found.get_mlflow_tracking_uri())

    def list(self, **kwargs: Any) -> Iterator[WorkspaceView]:
        yield self.get()


@dataclass(frozen=True)
class WorkspaceView:
    """The attributes of a workspace that v2 scripts read."""

    name: str
    location: str
    resource_group: str
    mlflow_tracking_uri: str


class Clusters(Operations):
    """`ml_client.compute`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def get(self, name: str) -> entities.AmlCompute:
        return _compute(self._workspace.client.cluster(name))

    def list(self, **kwargs: Any) -> Iterator[entities.AmlCompute]:
        """Every cluster."""
        return map(_compute, self._workspace.client.clusters())

    def begin_delete(self, name: str, **kwargs: Any) -> Done:
        """Delete a cluster once its runs have ended."""
        self._workspace.client.delete_cluster(name, "drain")
        return Done(None)

    def begin_create_or_update(self, wanted: entities.AmlCompute) -> Done:
        """Create a cluster; an existing one is left as it is."""
        known = {view.name for view in self._workspace.client.clusters()}
        if wanted.name in known:
            tell(f"the cluster {wanted.name} is there already and is left as it is; `muster cluster set` changes it")
            return Done(self.get(wanted.name))
        described = compute.AmlCompute.provisioning_configuration(
            vm_size=wanted.size,
            vm_priority="lowpriority" if "low" in wanted.tier.lower() else "dedicated",
            min_nodes=wanted.min_instances,
            max_nodes=wanted.max_instances,
            idle_seconds_before_scaledown=wanted.idle_time_before_scale_down,
        )
        compute.ComputeTarget.create(self._workspace, wanted.name, described)
        return Done(self.get(wanted.name))


def _compute(view: ClusterView) -> entities.AmlCompute:
    return entities.AmlCompute(
        name=view.name,
        size=view.size.name if view.size else "",
        min_instances=view.min_nodes,
        max_instances=view.max_nodes,
        idle_time_before_scale_down=int(view.idle_seconds_before_scaledown),
        tier=view.vm_priority,
        provisioning_state=compute.ClusterStatus(view).provisioning_state,
    )


__all__ = ["Done", "Job", "Jobs", "MLClient"]
