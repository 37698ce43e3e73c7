"""Names that submission scripts import and that have little to do here: credentials, telemetry, versions."""

from __future__ import annotations

from typing import Any

from muster.sdk.connected import Connected
from muster.sdk.run import Run

VERSION = "1.60.0"
"""Of the v1 SDK whose names these are."""
DEFAULT_CPU_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"
DEFAULT_GPU_IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-cuda11.8-cudnn8-ubuntu22.04"


class NoCredential:
    """Accepted and not used: who you are to Muster is decided by its token."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass


class InteractiveLoginAuthentication(NoCredential):
    """Not used."""


class ServicePrincipalAuthentication(NoCredential):
    """Not used."""


class MsiAuthentication(NoCredential):
    """Not used."""


class AzureCliAuthentication(NoCredential):
    """Not used."""


class DefaultAzureCredential(NoCredential):
    """Not used."""

    def get_token(self, *scopes: str, **kwargs: Any) -> str:
        """Scripts ask for one to see whether they are signed in."""
        return ""


class InteractiveBrowserCredential(DefaultAzureCredential):
    """Not used."""


class AzureCliCredential(DefaultAzureCredential):
    """Not used."""


class ManagedIdentityCredential(DefaultAzureCredential):
    """Not used."""


class ContainerRegistry:
    """Where an image comes from; passwords are kept with `muster secret set`."""

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
