"""Names that submission scripts import and that do little here: credentials, telemetry, versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from muster.errors import JobError
from muster.sdk.connected import Connected
from muster.sdk.run import Run

VERSION = "1.60.0"
"""The version of the v1 SDK whose names these are."""
VERSION_2 = "1.35.2"
"""The version of the package `azure-ai-ml` whose names `muster.ml` has."""
DEFAULT_CPU_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"
DEFAULT_GPU_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-cuda11.8-cudnn8-ubuntu22.04"


class NoCredential:
    """Accepted and not used: Muster's own token identifies the user."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def get_token(self, *scopes: str, **kwargs: Any) -> str:
        """Scripts call this to check whether they are signed in."""
        return ""

    def get_authentication_header(self) -> dict[str, str]:
        """Scripts add it to their own requests to Azure."""
        return {}


def get_bearer_token_provider(*args: Any, **kwargs: Any) -> Callable[[], str]:
    """A function that returns the credential's token."""
    return str


class ContainerRegistry:
    """The registry of an image; its password is set with `muster secret set`."""

    def __init__(self) -> None:
        self.address: str | None = None
        self.username: str | None = None
        self.password: str | None = None


def set_diagnostics_collection(send_diagnostics: bool = True, verbosity: int | None = None) -> None:
    """Nothing is collected."""


def get_run(experiment: Any, run_id: str, rehydrate: bool = True) -> Run:
    """A run of an experiment's workspace."""
    workspace: Connected = experiment.workspace
    return Run.get(workspace, run_id)


def get_portal_url(run: Any) -> str:
    """The command that shows an MLflow run in a terminal."""
    return f"muster show {run.info.run_id}"


class ResourceConfiguration:
    """The resources of a model's service; here a deployment sets its own."""

    def __init__(self, cpu: float | None = None, memory_in_gb: float | None = None, gpu: int | None = None) -> None:
        self.cpu = cpu
        self.memory_in_gb = memory_in_gb
        self.gpu = gpu


class DataReferenceConfiguration:
    """v1's oldest way to name a folder of a datastore: using it raises an error with the current way."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise JobError(
            "DataReferenceConfiguration cannot be used",
            "Give datastore.path('folder').as_mount() instead: run_config.data_references = {'name': that}.",
        )


class DataType:
    """Types of columns; pandas finds them itself when it reads a file."""

    @staticmethod
    def to_string(*args: Any) -> str:
        return "string"

    @staticmethod
    def to_long(*args: Any) -> str:
        return "integer"

    @staticmethod
    def to_float(*args: Any, **kwargs: Any) -> str:
        return "float"

    @staticmethod
    def to_bool(*args: Any, **kwargs: Any) -> str:
        return "bool"

    @staticmethod
    def to_datetime(*args: Any) -> str:
        return "datetime"
