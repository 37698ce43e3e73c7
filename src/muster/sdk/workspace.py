"""A workspace as the SDK's entry point."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from muster.client.api import Client
from muster.client.connect import connect
from muster.client.door import Door
from muster.client.storage import Storage
from muster.client.workspace import FOLDER, WorkspaceRef, create_workspace, find_folder, find_workspace
from muster.errors import NotFound, UserError
from muster.host.files import read_json, write_json
from muster.sdk.compute import ComputeTarget
from muster.sdk.data.dataset import Dataset, FileDataset
from muster.sdk.data.datastore import Datastore
from muster.sdk.environment import Environment
from muster.sdk.experiment import Experiment
from muster.sdk.keyvault import Keyvault
from muster.sdk.model import Model
from muster.sdk.notices import tell
from muster.sdk.run import Run
from muster.sdk.webservice import Webservice

_OWN_FOLDER = "muster_folder"
"""The key for the workspace's folder in a `config.json` from `write_config`."""
_AZURE_FILES = (".azureml/config.json", "config.json", "aml_config/config.json")


class Workspace:
    """A team's experiments, runs, compute targets, datastores and models."""

    def __init__(
        self,
        subscription_id: str | None = None,
        resource_group: str | None = None,
        workspace_name: str | None = None,
        *,
        ref: WorkspaceRef | None = None,
        **kwargs: Any,
    ) -> None:
        if subscription_id or resource_group:
            tell("the subscription and resource group of a workspace are ignored: it is a folder of this machine")
        self.ref = ref or find_workspace()
        self.subscription_id = subscription_id or ""
        self.resource_group = resource_group or ""
        self.location = "local" if self.ref.server is None else self.ref.server.url

    @staticmethod
    def from_config(path: str | Path | None = None, **kwargs: Any) -> Workspace:
        """The workspace of this folder (`.muster` here or above), or that of an Azure `config.json`; else your own."""
        start = Path(path).expanduser() if path is not None else Path.cwd()
        if not start.exists():
            raise NotFound(f"there is no folder or file {start}", "Make a workspace with `muster init`.")
        if start.is_file():
            return _from_azure(start)
        azure = _azure_file(start)
        folder = find_folder(start)
        if azure is not None and (folder is None or not folder.parent.is_relative_to(_folder_of(azure))):
            return _from_azure(azure)
        return Workspace(ref=find_workspace(start))

    @staticmethod
    def get(
        name: str,
        auth: Any = None,
        subscription_id: str | None = None,
        resource_group: str | None = None,
        **kwargs: Any,
    ) -> Workspace:
        """The workspace of this folder, if it has this name; Azure's arguments allow any name, with a notice."""
        found = find_workspace()
        if found.name != name and subscription_id:
            tell(f"the workspace {name!r} of Azure is not asked for: the one here is {found.name!r}, and is used")
        elif found.name != name:
            raise NotFound(
                f"the workspace here is {found.name!r} ({found.root}), not {name!r}",
                "Change to its folder, or make one with Workspace.create(name).",
            )
        return Workspace(ref=found)

    @staticmethod
    def list(*args: Any, **kwargs: Any) -> dict[str, Sequence[Workspace]]:
        """The workspace of this folder, by its name."""
        found = Workspace(ref=find_workspace())
        return {found.name: [found]}

    @staticmethod
    def create(name: str, exist_ok: bool = False, path: str | Path = ".", **kwargs: Any) -> Workspace:
        """Create a workspace in a folder."""
        return Workspace(ref=create_workspace(path, name, exist_ok))

    @cached_property
    def client(self) -> Client:
        """The connection to the workspace's server, which starts by itself."""
        return connect(self.ref)

    @property
    def name(self) -> str:
        """The workspace's name."""
        return self.ref.name

    @property
    def compute_targets(self) -> dict[str, ComputeTarget]:
        """The compute targets, by name."""
        return {target.name: target for target in ComputeTarget.list(self)}

    @property
    def datastores(self) -> dict[str, Datastore]:
        """The datastores, by name."""
        return {view.name: Datastore(self, view.name) for view in Storage(self.client.calls).datastores()}

    def get_default_datastore(self) -> Datastore:
        """The workspace's own datastore."""
        return Datastore.get_default(self)

    @property
    def experiments(self) -> dict[str, Experiment]:
        """The experiments that have runs, by name."""
        return {experiment.name: experiment for experiment in Experiment.list(self)}

    @property
    def models(self) -> dict[str, Model]:
        """The newest version of every model."""
        return {model.name: model for model in Model.list(self, latest=True)}

    @property
    def environments(self) -> dict[str, Environment]:
        """The newest version of every registered environment, by name."""
        return Environment.list(self)

    @property
    def datasets(self) -> dict[str, FileDataset]:
        """The newest version of every registered dataset, by name."""
        return Dataset.get_all(self)

    @property
    def webservices(self) -> dict[str, Webservice]:
        """The services, by name."""
        return {service.name: service for service in Webservice.list(self)}

    @property
    def tags(self) -> dict[str, str]:
        """Kept for v1 scripts: a workspace has no tags."""
        return {}

    def get_default_keyvault(self) -> Keyvault:
        """The workspace's secrets."""
        return Keyvault(self)

    def get_default_compute_target(self, type: str = "CPU") -> ComputeTarget:
        """The compute target `local`, which always exists."""
        return ComputeTarget(self, "local")

    def set_default_datastore(self, name: str) -> None:
        """Kept for v1 scripts: the default stays the workspace's own."""
        tell(f"the default datastore stays the workspace's own; name {name!r} where you want it")

    def get_mlflow_tracking_uri(self) -> str:
        """The address for MLflow's clients: in a run its own, elsewhere one that is open while this process lives.

        The token for it, `MLFLOW_TRACKING_TOKEN`, is set in this process.
        """
        if known := os.environ.get("MLFLOW_TRACKING_URI"):
            return known
        address = self._door.url
        os.environ["MLFLOW_TRACKING_TOKEN"] = self.client.calls.address.token
        # The address has no pages for MLflow's links.
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        return address

    @cached_property
    def _door(self) -> Door:
        return Door(self.client.calls).__enter__()

    def experiment(self, name: str) -> Experiment:
        """An experiment by name, whether it has runs yet or not."""
        return Experiment(self, name)

    def get_run(self, run_id: str) -> Run:
        """A run by id, unique prefix, name or `@latest`."""
        return Run.get(self, run_id)

    def get_details(self) -> dict[str, str]:
        """A description of the workspace, under v1's keys."""
        return {"id": self.ref.id, "name": self.name, "location": self.location, "folder": str(self.ref.root)}

    def write_config(self, path: str | None = None, file_name: str | None = None) -> None:
        """Write a `config.json` by which `from_config` finds this workspace, in `.azureml` unless a folder is given."""
        file = Path(path or ".azureml") / (file_name or "config.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        described = {"workspace_name": self.name, "subscription_id": "", "resource_group": ""}
        write_json(file, {**described, _OWN_FOLDER: str(self.ref.root)})

    def __repr__(self) -> str:
        return f"Workspace(name={self.name!r}, folder={str(self.ref.root)!r})"


def _azure_file(start: Path) -> Path | None:
    """The nearest Azure ML configuration at or above a folder."""
    resolved = start.resolve()
    candidates = (folder / name for folder in (resolved, *resolved.parents) for name in _AZURE_FILES)
    return next((file for file in candidates if file.is_file() and _azure_name(file)), None)


def _from_azure(file: Path) -> Workspace:
    name, content = _azure_name(file), read_json(file)
    own = content.get(_OWN_FOLDER) if isinstance(content, dict) else None
    if isinstance(own, str) and find_folder(Path(own).parent) == Path(own):
        return Workspace(ref=find_workspace(Path(own).parent))
    if not name:
        raise UserError(f"{file} names no workspace", 'An Azure ML config.json has "workspace_name".')
    tell(f"{file}: the subscription is ignored; the workspace {name!r} is the folder {_folder_of(file) / FOLDER}")
    return Workspace(ref=create_workspace(_folder_of(file), name, exist_ok=True))


def _azure_name(file: Path) -> str:
    content = read_json(file)
    name = content.get("workspace_name") if isinstance(content, dict) else None
    return name if isinstance(name, str) else ""


def _folder_of(file: Path) -> Path:
    folder = file.resolve().parent
    return folder.parent if folder.name in (".azureml", "aml_config") else folder
