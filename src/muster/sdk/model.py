"""Registered models, in v1's words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from muster.client.snapshot import push, scan
from muster.errors import Conflict, NotFound
from muster.host.files import is_safe_path
from muster.sdk.connected import Connected
from muster.wire.codec import Json
from muster.wire.models import ModelView

_SNAPSHOT = "snapshot"
_LIMIT_BYTES = 1 << 50


class Model:
    """One version of a model, with the run that it came from."""

    def __init__(
        self, workspace: Connected, name: str | None = None, id: str | None = None, version: int | None = None
    ) -> None:
        if name is None and id is not None:
            name, _, number = id.rpartition(":")
            version = int(number)
        self._set(workspace, workspace.client.model(name or "", version))

    @classmethod
    def _of(cls, workspace: Connected, view: ModelView) -> Model:
        model = cls.__new__(cls)
        model._set(workspace, view)
        return model

    def _set(self, workspace: Connected, view: ModelView) -> None:
        self.workspace = workspace
        self.name = view.name
        self.version = view.version
        self.path = view.path
        self.run_id = view.run_id
        self.description = view.description
        self.tags = dict(view.tags)
        self.properties = dict(view.properties)
        self.created_time = view.created_at

    @property
    def id(self) -> str:
        """`NAME:VERSION`."""
        return f"{self.name}:{self.version}"

    @staticmethod
    def register(
        workspace: Connected,
        model_path: str,
        model_name: str,
        tags: Mapping[str, Json] | None = None,
        properties: Mapping[str, Json] | None = None,
        description: str | None = None,
        **kwargs: Any,
    ) -> Model:
        """Register a local file or folder; its bytes go into the workspace."""
        source = Path(model_path).expanduser()
        if not source.exists():
            raise NotFound(f"there is no file or folder {source} to register as {model_name!r}")
        digest = push(workspace.client, scan(source, _LIMIT_BYTES, is_code=False))
        view = workspace.client.register_model(
            model_name,
            source.resolve().name + ("/" if source.is_dir() else ""),
            tags={str(key): str(value) for key, value in (tags or {}).items()},
            properties={**(properties or {}), _SNAPSHOT: digest},
            description=description,
        )
        return Model._of(workspace, view)

    @staticmethod
    def list(workspace: Connected, name: str | None = None, latest: bool = False, **kwargs: Any) -> list[Model]:
        """Models of the workspace; with `latest` only the newest version of each."""
        models = [Model._of(workspace, view) for view in workspace.client.models(name)]
        if not latest:
            return models
        newest: dict[str, Model] = {}
        for model in models:
            if model.name not in newest or model.version > newest[model.name].version:
                newest[model.name] = model
        return [*newest.values()]

    def download(self, target_dir: str = ".", exist_ok: bool = False, exists_ok: bool | None = None) -> str:
        """The model's file or folder in `target_dir`; returns its path."""
        target = Path(target_dir) / Path(self.path).name
        if target.exists() and not (exist_ok or exists_ok):
            raise Conflict(f"{target} exists already", "Pass exist_ok=True, or choose another folder.")
        client = self.workspace.client
        if _SNAPSHOT in self.properties:
            # A folder's snapshot holds what is below it, a file's the file itself.
            folder = target if self.path.endswith("/") else target.parent
            client.download_snapshot(str(self.properties[_SNAPSHOT]), folder)
        elif self.run_id is not None:
            names = [file.path for file in client.files(self.run_id)]
            for name, inner in _below(self.path, names):
                client.download(self.run_id, name, target / inner if inner else target)
        return str(target)

    def __repr__(self) -> str:
        return f"Model(name={self.name!r}, version={self.version})"


def _below(path: str, names: Iterable[str]) -> Iterable[tuple[str, str]]:
    """(name, name below `path`) of the files of a model."""
    path = path.strip("/")
    found = [(name, name[len(path) + 1 :]) for name in names if name == path or name.startswith(path + "/")]
    if not found:
        raise NotFound(f"the run has no files under {path!r} any more")
    for name, inner in found:
        if inner and not is_safe_path(inner):
            raise NotFound(f"the file name {name!r} leaves the target folder")
    return found
