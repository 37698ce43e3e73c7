"""Named storage, under v1's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from muster.client.storage import Storage
from muster.client.transfer.copying import send_files
from muster.client.transfer.places import parse_place
from muster.errors import Conflict, JobError, NotFound
from muster.host.hashing import measure
from muster.sdk.connected import Connected
from muster.sdk.notices import tell
from muster.storage.addresses import DEFAULT_DATASTORE, datastore_address, safe_path
from muster.wire.codec import Json, to_json
from muster.wire.data.access import FileEntry
from muster.wire.data.datastores import NewDatastore


class Datastore:
    """Storage with a name."""

    def __init__(self, workspace: Connected, name: str | None = None) -> None:
        found = Storage(workspace.client.calls).datastore(name or DEFAULT_DATASTORE)
        self.workspace = workspace
        self.name = found.name
        self.datastore_type = found.kind
        self._options = found.options

    @property
    def account_name(self) -> str | None:
        """The storage account of an Azure datastore."""
        return self._option("account")

    @property
    def container_name(self) -> str | None:
        """The container or share of an Azure datastore."""
        return self._option("container") or self._option("share")

    @property
    def endpoint(self) -> str | None:
        """The service's address, if it is not Azure's own."""
        return self._option("endpoint")

    def _option(self, key: str) -> str | None:
        value = self._options.get(key)
        return value if isinstance(value, str) else None

    @staticmethod
    def get(workspace: Connected, datastore_name: str) -> Datastore:
        """A datastore by name."""
        return Datastore(workspace, datastore_name)

    @staticmethod
    def get_default(workspace: Connected) -> Datastore:
        """The workspace's own datastore."""
        return Datastore(workspace, DEFAULT_DATASTORE)

    @staticmethod
    def register_local_folder(workspace: Connected, datastore_name: str, path: str) -> Datastore:
        """Register a folder of this machine."""
        folder = Path(path).expanduser().resolve()
        if not folder.is_dir():
            raise NotFound(f"there is no folder {folder}", "Make it first.")
        return _register(workspace, datastore_name, "local", {"path": str(folder)}, {}, overwrite=False)

    @staticmethod
    def register_azure_blob_container(
        workspace: Connected,
        datastore_name: str,
        container_name: str,
        account_name: str,
        sas_token: str | None = None,
        account_key: str | None = None,
        protocol: str | None = None,
        endpoint: str | None = None,
        overwrite: bool = False,
        **kwargs: Any,
    ) -> Datastore:
        """Register a container of Azure Blob storage; without key or SAS it is public or uses the server's identity."""
        create = bool(kwargs.pop("create_if_not_exists", False))
        _ignore(kwargs, "register_azure_blob_container")
        options = {
            "account": account_name,
            "container": container_name,
            "endpoint": _endpoint(account_name, "blob", protocol, endpoint),
        }
        credential = {"sas": sas_token, "account_key": account_key}
        return _register(workspace, datastore_name, "azure-blob", options, credential, overwrite, create)

    @staticmethod
    def register_azure_file_share(
        workspace: Connected,
        datastore_name: str,
        file_share_name: str,
        account_name: str,
        sas_token: str | None = None,
        account_key: str | None = None,
        protocol: str | None = None,
        endpoint: str | None = None,
        overwrite: bool = False,
        **kwargs: Any,
    ) -> Datastore:
        """Register a share of Azure Files."""
        create = bool(kwargs.pop("create_if_not_exists", False))
        _ignore(kwargs, "register_azure_file_share")
        options = {
            "account": account_name,
            "share": file_share_name,
            "endpoint": _endpoint(account_name, "file", protocol, endpoint),
        }
        credential = {"sas": sas_token, "account_key": account_key}
        return _register(workspace, datastore_name, "azure-file", options, credential, overwrite, create)

    @staticmethod
    def register_azure_data_lake_gen2(
        workspace: Connected,
        datastore_name: str,
        filesystem: str,
        account_name: str,
        tenant_id: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        protocol: str | None = None,
        endpoint: str | None = None,
        overwrite: bool = False,
        **kwargs: Any,
    ) -> Datastore:
        """Register a filesystem of an account with a hierarchical namespace, with a service principal or identity."""
        _ignore(kwargs, "register_azure_data_lake_gen2")
        options: Mapping[str, Json] = {
            "account": account_name,
            "container": filesystem,
            "hierarchical": True,
            "identity": None if client_secret else True,
            "tenant_id": tenant_id,
            "client_id": client_id,
            "endpoint": _endpoint(account_name, "blob", protocol, endpoint),
        }
        return _register(workspace, datastore_name, "azure-blob", options, {"client_secret": client_secret}, overwrite)

    @staticmethod
    def register_url(
        workspace: Connected,
        datastore_name: str,
        url: str,
        options: Mapping[str, Json] | None = None,
        secret_options: Mapping[str, Json] | None = None,
        overwrite: bool = False,
    ) -> Datastore:
        """Register any address that fsspec supports: s3://…, gs://…, sftp://…; credentials go in `secret_options`."""
        given: Mapping[str, Json] = {"url": url, "options": dict(options) if options else None}
        credential = {"secret_options": dict(secret_options) if secret_options else None}
        return _register(workspace, datastore_name, "fsspec", given, credential, overwrite)

    @staticmethod
    def register_nfs(workspace: Connected, datastore_name: str, path: str, overwrite: bool = False) -> Datastore:
        """Register a share that is mounted at the same path on all nodes."""
        return _register(workspace, datastore_name, "nfs", {"path": path}, {}, overwrite)

    def path(self, path: str = "", data_reference_name: str | None = None) -> DataPath:
        """A path in the datastore, from which to make a dataset."""
        return DataPath(self, safe_path(path))

    def upload(
        self,
        src_dir: str,
        target_path: str | None = None,
        overwrite: bool = False,
        show_progress: bool = True,
    ) -> DataPath:
        """Copy a folder into the datastore."""
        files = [str(file) for file in sorted(Path(src_dir).rglob("*")) if file.is_file()]
        return self.upload_files(files, src_dir, target_path, overwrite, show_progress)

    def upload_files(
        self,
        files: Iterable[str],
        relative_root: str | None = None,
        target_path: str | None = None,
        overwrite: bool = False,
        show_progress: bool = True,
    ) -> DataPath:
        """Copy files into the datastore; existing ones stay unless `overwrite`."""
        target = self.path(target_path or "")
        there = {entry.path for entry in target._files()} if not overwrite else set()
        named = {
            Path(name).relative_to(relative_root).as_posix() if relative_root else Path(name).name: Path(name)
            for name in files
        }
        wanted = {inner: file for inner, file in named.items() if inner not in there}
        try:
            send_files(self._storage, parse_place(target.address), wanted)
        except Conflict as conflict:
            # A notebook that is run again uploads files that its dataset has already.
            if not self._holds(target, wanted):
                hint = "Upload to another target_path, and register that as a new version."
                raise Conflict(conflict.message, hint) from conflict
        return target

    def _holds(self, target: DataPath, files: Mapping[str, Path]) -> bool:
        """Whether exactly these files are there."""
        inner = target.path_on_datastore
        sizes = {entry.path: entry.size for entry in target._files()}
        if any(sizes.get(name) != file.stat().st_size for name, file in files.items()):
            return False
        entries = [FileEntry(f"{inner}/{name}" if inner else name, sizes[name]) for name in files]
        with TemporaryDirectory() as folder:
            self._storage.download(self.name, entries, Path(folder))
            return all(
                measure(Path(folder) / entry.path) == measure(file)
                for entry, file in zip(entries, files.values(), strict=True)
            )

    def download(
        self, target_path: str, prefix: str | None = None, overwrite: bool = False, show_progress: bool = True
    ) -> int:
        """Copy files below `prefix` to a folder; returns their number."""
        source = self.path(prefix or "")
        inner = source.path_on_datastore
        named = [replace(entry, path=f"{inner}/{entry.path}" if inner else entry.path) for entry in source._files()]
        wanted = [entry for entry in named if overwrite or not (Path(target_path) / entry.path).exists()]
        self._storage.download(self.name, wanted, Path(target_path))
        return len(wanted)

    def as_mount(self) -> DataPath:
        """The whole datastore, as an input that is read in place or staged."""
        return self.path().as_mount()

    def as_download(self, path_on_compute: str | None = None) -> DataPath:
        """The whole datastore, as an input that is copied for the job."""
        return self.path().as_download()

    def set_as_default(self) -> None:
        """Kept for v1 scripts: the default stays the workspace's own."""
        tell(f"the default datastore stays the workspace's own; name {self.name!r} where you want it")

    @property
    def is_default(self) -> bool:
        """Whether it is the workspace's own datastore."""
        return self.name == DEFAULT_DATASTORE

    def unregister(self) -> None:
        """Remove the datastore; its files stay."""
        self._storage.delete_datastore(self.name)

    @property
    def _storage(self) -> Storage:
        return Storage(self.workspace.client.calls)

    def __repr__(self) -> str:
        return f"Datastore(name={self.name!r}, type={self.datastore_type!r})"


@dataclass(frozen=True)
class DataPath:
    """A path in a datastore."""

    datastore: Datastore
    path_on_datastore: str = ""
    mode: str = "ro_mount"

    def as_mount(self) -> DataPath:
        """An input that is read in place or staged."""
        return replace(self, mode="ro_mount")

    def as_download(self, path_on_compute: str | None = None, overwrite: bool = False) -> DataPath:
        """An input that is copied for the job."""
        return replace(self, mode="download")

    @property
    def address(self) -> str:
        return datastore_address(self.datastore.name, self.path_on_datastore)

    def files(self) -> list[dict[str, Json]]:
        """{path, size} of every file below this path, with relative paths."""
        return [to_json(entry) for entry in self._files()]

    def _files(self) -> tuple[FileEntry, ...]:
        return self.datastore._storage.files(self.datastore.name, self.path_on_datastore)


class DataReference(DataPath):
    """A path in a datastore with the name of a script's input, as in v1's oldest scripts."""

    def __init__(
        self,
        datastore: Datastore,
        data_reference_name: str | None = None,
        path_on_datastore: str | None = None,
        mode: str = "mount",
        path_on_compute: str | None = None,
        overwrite: bool = False,
    ) -> None:
        if mode not in _MODES:
            raise JobError(
                f"mode={mode!r} of a DataReference is not there",
                "Use mount or download; OutputFileDatasetConfig writes.",
            )
        super().__init__(datastore, path_on_datastore or "", _MODES[mode])
        object.__setattr__(self, "data_reference_name", data_reference_name or datastore.name)

    data_reference_name: str

    def as_mount(self) -> DataReference:
        return DataReference(self.datastore, self.data_reference_name, self.path_on_datastore)

    def as_download(self, path_on_compute: str | None = None, overwrite: bool = False) -> DataReference:
        return DataReference(self.datastore, self.data_reference_name, self.path_on_datastore, "download")

    def to_config(self) -> DataReference:
        """The value for `run_config.data_references`: the same object."""
        return self

    def __str__(self) -> str:
        """A placeholder for `arguments`, which each rank replaces by its path."""
        return f"$AZURE_ML_INPUT_{self.data_reference_name}"


_MODES = {"mount": "ro_mount", "ro_mount": "ro_mount", "download": "download"}


def _register(
    workspace: Connected,
    name: str,
    kind: str,
    options: Mapping[str, Json],
    credential: Mapping[str, Json],
    overwrite: bool,
    create: bool = False,
) -> Datastore:
    given = {key: value for key, value in options.items() if value is not None}
    secret = {key: value for key, value in credential.items() if value is not None}
    wanted = NewDatastore(name, kind, given, secret, create=create)
    made = Storage(workspace.client.calls).create_datastore(wanted, overwrite)
    if made.notice:
        tell(made.notice)
    return Datastore(workspace, name)


def _endpoint(account: str, service: str, protocol: str | None, endpoint: str | None) -> str | None:
    """The service's address: v1 gives the domain (`core.windows.net`); a full address is used as it is."""
    if endpoint is None and protocol in (None, "https"):
        return None
    if endpoint is not None and "://" in endpoint:
        return endpoint
    if protocol not in (None, "https", "http"):
        raise JobError(f"protocol={protocol!r} is not known", "Use https, or http for a test.")
    return f"{protocol or 'https'}://{account}.{service}.{endpoint or 'core.windows.net'}"


def _ignore(kwargs: Mapping[str, Json], where: str) -> None:
    for name, value in kwargs.items():
        if value is not None:
            tell(f"{where}: {name} means nothing here and is ignored")
