"""Online endpoints and deployments as v2 scripts make them: what a file could say too, under the same keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.job.endpoints.deployment import DeploymentFile, deployment_of
from muster.job.endpoints.endpoint import EndpointFile, endpoint_of
from muster.sdk.model import Model
from muster.wire.codec import Json


class Described:
    """Something that a file could say too: its keyword arguments are the file's keys."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def described(self) -> dict[str, Json]:
        """The values as a file has them."""
        return {key: _plain(value) for key, value in vars(self).items() if value is not None}


class CodeConfiguration(Described):
    """A folder, and the script in it that has `init()` and `run()`."""

    def __init__(self, code: str = ".", scoring_script: str = "score.py") -> None:
        super().__init__(code=str(code), scoring_script=str(scoring_script))


class OnlineRequestSettings(Described):
    """How requests to a deployment are taken."""


class ProbeSettings(Described):
    """How it is found out whether a replica lives."""


class DefaultScaleSettings(Described):
    """As many replicas as `instance_count` says."""

    def __init__(self) -> None:
        super().__init__(type="default")


class TargetUtilizationScaleSettings(Described):
    """A number of replicas that follows the load."""

    def __init__(self, **values: Any) -> None:
        super().__init__(type="target_utilization", **values)


class ManagedOnlineEndpoint(Described):
    """An address that stays, with keys."""

    name: str
    traffic: Mapping[str, int]
    mirror_traffic: Mapping[str, int]
    scoring_uri: str | None = None

    def said(self) -> EndpointFile:
        """Checked, as from a file; raises JobError."""
        return endpoint_of(Path.cwd() / "ManagedOnlineEndpoint", self.described())


class KubernetesOnlineEndpoint(ManagedOnlineEndpoint):
    """The same on a cluster that it names."""


class ManagedOnlineDeployment(Described):
    """A model that answers at an endpoint."""

    name: str
    endpoint_name: str

    def said(self) -> DeploymentFile:
        """Checked, as from a file; raises JobError. Paths are relative to the current folder."""
        return deployment_of(Path.cwd() / "ManagedOnlineDeployment", self.described())


class KubernetesOnlineDeployment(ManagedOnlineDeployment):
    """The same on a cluster that its endpoint names."""


def _plain(value: Any) -> Json:
    """A value of a script as a file has it."""
    if isinstance(value, Model):
        return f"azureml:{value.name}:{value.version}"
    plain: Json = value.described() if hasattr(value, "described") else value
    return plain
