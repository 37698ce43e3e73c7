"""Typed calls to a server, by noun; `muster.wire` has the messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from muster.client.calls import LONG_S, Calls, checking, segment
from muster.client.clusters import Clusters
from muster.client.code import Code
from muster.client.runs import Runs
from muster.host.http import Address
from muster.wire.codec import Json
from muster.wire.encryption import EncryptionView, NewKey, RotatedKey
from muster.wire.environments import EnvironmentView, NewEnvironment
from muster.wire.models import ModelView, NewModel
from muster.wire.node.plan import PlanRequest, PlanView
from muster.wire.retention import RetentionPolicy, RetentionReport
from muster.wire.secrets import NewSecret, SecretView
from muster.wire.workspace import Health, Shutdown

if TYPE_CHECKING:
    # Pydantic takes longer to load than most commands take.
    from muster.job.spec import JobSpec

_ROTATION_S = 86_400.0


class Client(Runs, Clusters, Code):
    """Speaks to one server; may be shared between threads.

    `reconnect` finds the server again (and starts an embedded one) when it does not answer.
    """

    def __init__(self, address: Address, reconnect: Callable[[], Address] | None = None) -> None:
        super().__init__(Calls(address, reconnect))

    @property
    def address(self) -> Address:
        return self.calls.address

    # The workspace

    def health(self) -> Health:
        return self.calls.read(Health, "GET", "/health")

    def plan(self, spec: JobSpec, python: str | None = None) -> PlanView:
        """The plan of a job, without running it."""
        request = PlanRequest(spec.model_dump(mode="json"), python)
        return self.calls.read(PlanView, "POST", "/plan", message=request)

    def collect(self, dry_run: bool, older_than_s: float, keep_last: int) -> RetentionReport:
        """Remove what nothing refers to; with `dry_run` only report what that is."""
        with checking():
            policy = RetentionPolicy(dry_run, older_than_s, keep_last)
        return self.calls.read(RetentionReport, "POST", "/gc", message=policy, again=False, timeout_s=LONG_S)

    def encryption(self) -> EncryptionView:
        return self.calls.read(EncryptionView, "GET", "/encryption")

    def rotate_key(self, key: NewKey) -> RotatedKey:
        """Have every stored file opened by the new key."""
        return self.calls.read(RotatedKey, "POST", "/encryption/rotate", message=key, timeout_s=_ROTATION_S)

    def shutdown(self, force: bool = False) -> None:
        """End the server; without `force` only an idle one."""
        try:
            self.calls.send("POST", "/shutdown", message=Shutdown(force), again=False)
        finally:
            self.close()

    def close(self) -> None:
        """Close this thread's connection."""
        self.calls.close()

    # Secrets

    def secrets(self) -> list[SecretView]:
        """Names and dates; no call gives a value back."""
        return self.calls.read(list[SecretView], "GET", "/secrets")

    def set_secret(self, name: str, value: str) -> None:
        self.calls.send("PUT", f"/secrets/{name}", message=NewSecret(value))

    def remove_secret(self, name: str) -> None:
        self.calls.send("DELETE", f"/secrets/{name}")

    # Environments

    def environments(self) -> list[EnvironmentView]:
        """Registered environments, each in its newest version."""
        return self.calls.read(list[EnvironmentView], "GET", "/environments")

    def environment(self, name: str, version: str | None = None) -> EnvironmentView:
        """A registered environment, its newest version unless one is named."""
        path = f"/environments/{segment(name, 'environment')}"
        return self.calls.read(EnvironmentView, "GET", path, query={"version": version})

    def register_environment(self, name: str, spec: Mapping[str, Json]) -> EnvironmentView:
        """Keep the next version of an environment."""
        return self.calls.read(EnvironmentView, "POST", "/environments", message=NewEnvironment(name, spec))

    # Models

    def models(self, name: str | None = None) -> list[ModelView]:
        return self.calls.read(list[ModelView], "GET", "/models", query={"name": name})

    def model(self, name: str, version: int | None = None) -> ModelView:
        """One version of a model; the newest unless a version is given."""
        path = f"/models/{segment(name, 'model')}"
        return self.calls.read(ModelView, "GET", path, query={"version": version})

    def register_model(
        self,
        name: str,
        path: str,
        run_id: str | None = None,
        tags: Mapping[str, str] | None = None,
        properties: Mapping[str, Json] | None = None,
        description: str | None = None,
    ) -> ModelView:
        """The next version of a model."""
        with checking():
            model = NewModel(name, path, run_id, description, tags or {}, properties or {})
        return self.calls.read(ModelView, "POST", "/models", message=model, again=False)
