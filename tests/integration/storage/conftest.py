"""A real blob server (Azurite), a workspace with its client, and ways to make data."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Postgres, _end_workspace, wait_until
from tests.integration.server.conftest import Site, site

from muster.client.connect import connect
from muster.client.storage import Storage
from muster.client.workspace import create_workspace
from muster.wire.data.datastores import NewDatastore

__all__ = ["site"]

ACCOUNT = "devstoreaccount1"
# The key that every Azurite has; it opens nothing else.
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
TOOLS = Path(os.environ.get("MUSTER_TEST_TOOLS") or Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache/muster-tests")


class Azurite:
    """A blob server of one's own; `https` needs a certificate and its key."""

    def __init__(self, options: Sequence[str] = (), scheme: str = "http") -> None:
        program = TOOLS / "azurite/node_modules/.bin/azurite-blob"
        if not program.exists():
            pytest.skip(f"Azurite is not installed (npm install --prefix {TOOLS}/azurite azurite)")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.root = Path(tempfile.mkdtemp(prefix="maz-"))
        self.endpoint = f"{scheme}://127.0.0.1:{self.port}/{ACCOUNT}"
        command = [
            str(program),
            "--silent",
            "--skipApiVersionCheck",
            "--disableTelemetry",
            "--location",
            str(self.root),
        ]
        if setpriv := shutil.which("setpriv"):
            # A test run that is killed cleans up nothing.
            command = [setpriv, "--pdeathsig", "TERM", *command]
        with (self.root / "azurite.log").open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--blobHost", "127.0.0.1", "--blobPort", str(self.port), *options],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self._answers, 30.0, "the start of Azurite")

    def new_container(self) -> str:
        from azure.storage.blob import ContainerClient

        name = f"c{uuid.uuid4().hex[:12]}"
        with ContainerClient(self.endpoint, name, credential=ACCOUNT_KEY) as client:
            client.create_container()
        return name

    def put(self, container: str, path: str, data: bytes) -> None:
        from azure.storage.blob import BlobClient

        with BlobClient(self.endpoint, container, path, credential=ACCOUNT_KEY) as client:
            client.upload_blob(data, overwrite=True)

    def get(self, container: str, path: str) -> bytes:
        from azure.storage.blob import BlobClient

        with BlobClient(self.endpoint, container, path, credential=ACCOUNT_KEY) as client:
            return client.download_blob().readall()

    def names(self, container: str) -> list[str]:
        from azure.storage.blob import ContainerClient

        with ContainerClient(self.endpoint, container, credential=ACCOUNT_KEY) as client:
            return sorted(item.name for item in client.list_blobs())

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(20)
        shutil.rmtree(self.root, ignore_errors=True)

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.root / "azurite.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    pytest.importorskip(
        "azure.storage.blob", reason="azure-storage-blob is not installed (pip install 'muster-ml[azure]')"
    )
    server = Azurite()
    yield server
    server.close()


@dataclass
class Container:
    """A fresh container, registered in the workspace as the datastore `blob`."""

    azurite: Azurite
    name: str
    storage: Storage

    def put(self, path: str, data: bytes) -> None:
        self.azurite.put(self.name, path, data)

    def get(self, path: str) -> bytes:
        return self.azurite.get(self.name, path)

    def names(self) -> list[str]:
        return self.azurite.names(self.name)

    def register(self, name: str = "blob", **changes: Any) -> None:
        """With the account's key, unless another credential is given."""
        credential = changes.pop("credential", {"account_key": ACCOUNT_KEY})
        options = {"account": ACCOUNT, "container": self.name, "endpoint": self.azurite.endpoint, **changes}
        self.storage.create_datastore(NewDatastore(name, "azure-blob", options, credential), replace=True)


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One workspace for all tests of a module, which starts its server once."""
    yield from _serve(tmp_path_factory.mktemp("shared"), {})


@pytest.fixture(scope="module")
def shared_postgres_site(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[Site]:
    """The same with its database on PostgreSQL."""
    yield from _serve(tmp_path_factory.mktemp("postgres"), {"database": postgres.new_database()})


def _serve(folder: Path, config: dict[str, str]) -> Iterator[Site]:
    workspace = create_workspace(folder, "test")
    file = folder / ".muster" / "workspace.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    client = connect(workspace)
    yield Site(folder, client)
    client.close()
    _end_workspace(folder)


def shared_by_module(request: pytest.FixtureRequest) -> Site:
    """The module's workspace on the database that a test's parameter names; see `on_both_databases`."""
    postgres = getattr(request, "param", "sqlite") == "postgresql"
    found: Site = request.getfixturevalue("shared_postgres_site" if postgres else "shared_site")
    return found


@pytest.fixture
def storage(site: Site) -> Storage:
    return Storage(site.client.calls)


@pytest.fixture
def blob(azurite: Azurite, storage: Storage) -> Container:
    container = Container(azurite, azurite.new_container(), storage)
    container.register()
    return container
