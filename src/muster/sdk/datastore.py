"""Named storage, in v1's words; for now local folders."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from muster.errors import JobError, NotFound
from muster.sdk.connected import Connected


class Datastore:
    """Storage with a name."""

    def __init__(self, workspace: Connected, name: str) -> None:
        known = {row["name"]: row for row in workspace.client.datastores()}
        if name not in known:
            raise NotFound(f"there is no datastore {name!r}", _known(known))
        self.workspace = workspace
        self.name = name
        self.datastore_type = str(known[name]["kind"])
        self._options: dict[str, Any] = dict(known[name]["options"])

    @staticmethod
    def get(workspace: Connected, datastore_name: str) -> Datastore:
        return Datastore(workspace, datastore_name)

    @staticmethod
    def register_local_folder(workspace: Connected, datastore_name: str, path: str) -> Datastore:
        """Give a folder of this machine a name."""
        folder = Path(path).expanduser().resolve()
        if not folder.is_dir():
            raise NotFound(f"there is no folder {folder}", "Make it first.")
        workspace.client.create_datastore({"name": datastore_name, "kind": "local", "options": {"path": str(folder)}})
        return Datastore(workspace, datastore_name)

    @staticmethod
    def register_azure_blob_container(workspace: Connected, datastore_name: str, **kwargs: Any) -> NoReturn:
        _refuse("Azure Blob containers")

    @staticmethod
    def register_azure_file_share(workspace: Connected, datastore_name: str, **kwargs: Any) -> NoReturn:
        _refuse("Azure file shares")

    @staticmethod
    def register_azure_data_lake_gen2(workspace: Connected, datastore_name: str, **kwargs: Any) -> NoReturn:
        _refuse("Azure data lakes")

    def path(self, path: str = "") -> DataPath:
        """A place in the datastore, to make a dataset of."""
        return DataPath(self, path)

    def upload(
        self, src_dir: str, target_path: str = "", overwrite: bool = False, show_progress: bool = True
    ) -> DataPath:
        """Copy a folder into the datastore."""
        files = [str(file) for file in Path(src_dir).rglob("*") if file.is_file()]
        return self.upload_files(files, src_dir, target_path, overwrite, show_progress)

    def upload_files(
        self,
        files: Iterable[str],
        relative_root: str | None = None,
        target_path: str = "",
        overwrite: bool = False,
        show_progress: bool = True,
    ) -> DataPath:
        """Copy files into the datastore; existing ones stay unless `overwrite`."""
        target = Path(self.path(target_path).local_path)
        for name in files:
            file = Path(name)
            inner = file.relative_to(relative_root) if relative_root else Path(file.name)
            wanted = target / inner
            if overwrite or not wanted.exists():
                wanted.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, wanted)
        return self.path(target_path)

    def download(self, target_path: str, prefix: str = "", overwrite: bool = False) -> int:
        """Copy files below `prefix` to a folder; returns how many."""
        root = Path(self.path("").local_path)
        count = 0
        for file in sorted(Path(self.path(prefix).local_path).rglob("*")):
            wanted = Path(target_path) / file.relative_to(root)
            if file.is_file() and (overwrite or not wanted.exists()):
                wanted.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, wanted)
                count += 1
        return count

    def local_root(self) -> Path:
        if self.datastore_type != "local" or "path" not in self._options:
            raise JobError(f"the datastore {self.name!r} ({self.datastore_type}) cannot be reached from here yet")
        return Path(self._options["path"])


@dataclass(frozen=True)
class DataPath:
    """A place in a datastore."""

    datastore: Datastore
    path_on_datastore: str = ""

    @property
    def local_path(self) -> str:
        root = self.datastore.local_root()
        inner = (root / self.path_on_datastore.lstrip("/")).resolve()
        if not inner.is_relative_to(root):
            raise JobError(f"{self.path_on_datastore!r} leaves the datastore {self.datastore.name!r}")
        return str(inner)


def _known(known: Iterable[str]) -> str:
    names = ", ".join(sorted(known))
    return f"The datastores are: {names}." if names else "Register one with Datastore.register_local_folder."


def _refuse(what: str) -> NoReturn:
    raise JobError(
        f"{what} cannot be datastores yet",
        "Datastores are folders of this machine: Datastore.register_local_folder(workspace, name, path).",
    )
