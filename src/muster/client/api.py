"""Typed calls to a server, by noun; `muster.wire` has the messages."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from muster.client.calls import LONG_S, PIECE_BYTES, Calls, checking, segment
from muster.client.clusters import Clusters
from muster.client.inside.tunnels import Tunnels
from muster.client.people import People
from muster.client.runs import Runs
from muster.client.team.notifications import Notifications
from muster.errors import MusterError
from muster.host.files import is_safe_path
from muster.host.http import Address
from muster.wire.code import Manifest, MissingBlobs, SnapshotFiles
from muster.wire.codec import Json
from muster.wire.encryption import EncryptionView, NewKey, RotatedKey, SecretsResealed
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


class Client(Runs, Clusters, People, Tunnels, Notifications):
    """Talks to one server; may be shared between threads.

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
        """Re-wrap the keys of all stored files with the new key."""
        return self.calls.read(RotatedKey, "POST", "/encryption/rotate", message=key, timeout_s=_ROTATION_S)

    def rotate_secrets(self) -> SecretsResealed:
        """Reseal secrets and credentials with a fresh key."""
        return self.calls.read(SecretsResealed, "POST", "/encryption/rotate-secrets", timeout_s=_ROTATION_S)

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
        """Names and dates; no call returns a value."""
        return list(self.calls.each(SecretView, "/secrets"))

    def set_secret(self, name: str, value: str, shared: bool | None = None) -> None:
        """Set a secret; with `shared` everybody's jobs may use it."""
        self.calls.send("PUT", f"/secrets/{name}", message=NewSecret(value, shared))

    def remove_secret(self, name: str) -> None:
        self.calls.send("DELETE", f"/secrets/{name}")

    # Environments

    def environments(self) -> list[EnvironmentView]:
        """Registered environments, each in its newest version."""
        return list(self.calls.each(EnvironmentView, "/environments"))

    def environment(self, name: str, version: str | None = None) -> EnvironmentView:
        """A registered environment, its newest version unless one is named."""
        path = f"/environments/{segment(name, 'environment')}"
        return self.calls.read(EnvironmentView, "GET", path, query={"version": version})

    def register_environment(self, name: str, spec: Mapping[str, Json]) -> EnvironmentView:
        """Register the next version of an environment."""
        return self.calls.read(EnvironmentView, "POST", "/environments", message=NewEnvironment(name, spec))

    # Models

    def models(self, name: str | None = None) -> list[ModelView]:
        return list(self.calls.each(ModelView, "/models", {"name": name}))

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

    # Snapshots of code

    def missing_blobs(self, files: Manifest) -> MissingBlobs:
        """Whether the server has the snapshot, and which contents it lacks."""
        return self.calls.read(MissingBlobs, "POST", "/snapshots/missing", message=SnapshotFiles(files))

    def put_blobs(self, frames: Iterable[bytes]) -> None:
        """Send contents: a `BlobHead` as a JSON line and the bytes of each."""
        self.calls.send("POST", "/blobs", body=iter(frames), again=False, timeout_s=LONG_S)

    def put_snapshot(self, digest: str, files: Manifest) -> None:
        self.calls.send("PUT", f"/snapshots/{segment(digest, 'snapshot')}", message=SnapshotFiles(files))

    def download_snapshot(self, digest: str, folder: Path | str) -> None:
        """The files of a snapshot, into a folder."""
        path = f"/snapshots/{segment(digest, 'snapshot')}/archive"
        with self.calls.open(path, {}) as response, tarfile.open(fileobj=response, mode="r|") as archive:
            for member in archive:
                _unpack(archive, member, Path(folder))


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    source = archive.extractfile(member) if member.isfile() and is_safe_path(member.name) else None
    if source is None:
        raise MusterError(f"the archive holds {member.name!r}, which is not a plain file below its folder")
    target = folder / member.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with source, target.open("wb") as out:
        shutil.copyfileobj(source, out, PIECE_BYTES)
    target.chmod(member.mode & 0o777)
