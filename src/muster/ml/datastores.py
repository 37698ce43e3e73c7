"""Datastores of v2: the entities, their credentials, and `ml_client.datastores`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from muster.client.storage import Storage
from muster.errors import JobError
from muster.job.assets.datastore import DatastoreFile, datastore_of
from muster.ml.online_entities import Described
from muster.ml.operations import Operations
from muster.sdk.data.datastore import Datastore
from muster.sdk.notices import tell
from muster.sdk.workspace import Workspace
from muster.wire.data.datastores import NewDatastore


class AccountKeyConfiguration(Described):
    """The key of a storage account."""

    def __init__(self, *, account_key: str, **kwargs: Any) -> None:
        super().__init__(account_key=account_key)


class SasTokenConfiguration(Described):
    """A shared access signature."""

    def __init__(self, *, sas_token: str, **kwargs: Any) -> None:
        super().__init__(sas_token=sas_token)


class ServicePrincipalConfiguration(Described):
    """A service principal of Azure's directory, with its secret."""

    def __init__(self, *, client_secret: str, tenant_id: str, client_id: str, **kwargs: Any) -> None:
        super().__init__(client_secret=client_secret, tenant_id=tenant_id, client_id=client_id)


class NoneCredentialConfiguration(Described):
    """No credential: the storage is public, or the server's identity has access."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()


class AzureBlobDatastore(Described):
    """A container of Azure Blob storage."""

    name: str
    kind = "azure_blob"

    def __init__(self, *, name: str, account_name: str, **values: Any) -> None:
        super().__init__(**{"name": name, "type": self.kind, "account_name": account_name, **values})

    def said(self) -> DatastoreFile:
        """The datastore, checked as if from a file; raises JobError."""
        return datastore_of(type(self).__name__, self.described())


class AzureFileDatastore(AzureBlobDatastore):
    """A share of Azure Files."""

    kind = "azure_file"


class AzureDataLakeGen2Datastore(AzureBlobDatastore):
    """A filesystem of an account with a hierarchical namespace."""

    kind = "azure_data_lake_gen2"


class Datastores(Operations):
    """`ml_client.datastores`."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def create_or_update(self, datastore: AzureBlobDatastore) -> Datastore:
        """Register a datastore, or replace the one with this name."""
        if not isinstance(datastore, AzureBlobDatastore):
            raise JobError(f"a {type(datastore).__name__} is not a datastore", "Make an AzureBlobDatastore.")
        said = datastore.said()
        wanted = NewDatastore(said.name, said.kind, dict(said.options), dict(said.credential), said.description)
        made = Storage(self._workspace.client.calls).create_datastore(wanted, replace=True)
        if made.notice:
            tell(made.notice)
        return Datastore(self._workspace, said.name)

    def get(self, name: str, **kwargs: Any) -> Datastore:
        return Datastore(self._workspace, name)

    def get_default(self, **kwargs: Any) -> Datastore:
        return Datastore.get_default(self._workspace)

    def list(self, **kwargs: Any) -> Iterator[Datastore]:
        return iter(self._workspace.datastores.values())

    def delete(self, name: str) -> None:
        """Remove a datastore; its files stay."""
        Storage(self._workspace.client.calls).delete_datastore(name)
