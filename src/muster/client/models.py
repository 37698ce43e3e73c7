"""Calls about models; upload and download of their files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from muster.client.calls import LONG_S, Group, Progress, Query, checking, segment, unwatched
from muster.client.storage import Storage
from muster.errors import Conflict, JobError, NotFound
from muster.host.files import is_safe_path
from muster.job.endpoints.models import ModelInput, last_part
from muster.models.references import ModelReference, RunPath, parse
from muster.storage.addresses import DEFAULT_DATASTORE, datastore_address, parse_address
from muster.wire.codec import Json
from muster.wire.data.access import HashedFile
from muster.wire.models import ModelChanges, ModelDetails, ModelType, ModelView, NewModel


class Models(Group):
    """What a client does with registered models."""

    def list(self, name: str | None = None, tags: Sequence[str] = ()) -> list[ModelView]:
        """Versions of all models or of one, the newest first."""
        query: Query = {"name": name}
        found = self.calls.each(ModelView, "/models", query)
        wanted = [tag.partition("=") for tag in tags]
        return [
            model
            for model in found
            if all(key in model.tags and (not eq or model.tags[key] == value) for key, eq, value in wanted)
        ]

    def details(self, reference: str) -> ModelDetails:
        """One version with its files and lineage, by any reference to a registered model."""
        wanted = registered(reference)
        query: Query = {"version": wanted.version, "alias": wanted.alias, "stage": wanted.stage}
        path = f"/models/{segment(wanted.name, 'model')}/details"
        return self.calls.read(ModelDetails, "GET", path, query=query, timeout_s=LONG_S)

    def register(self, model: NewModel) -> ModelView:
        """The next version of a model, from a run's files or from a datastore."""
        return self.calls.read(ModelView, "POST", "/models", message=model, again=False, timeout_s=LONG_S)

    def upload(self, source: Path, model: NewModel, progress: Progress = unwatched) -> ModelView:
        """Register a local file or folder as the next version of a model, in a folder of its own in the workspace."""
        if not source.exists():
            raise NotFound(f"there is no file or folder {source} to register as {model.name!r}", "Correct the path.")
        folder = f"models/{model.name}/{os.urandom(6).hex()}"
        files = Storage(self.calls).upload(source, DEFAULT_DATASTORE, folder, progress)
        one = source.is_file()
        address = datastore_address(DEFAULT_DATASTORE, f"{folder}/{files[0].path}" if one else folder)
        sent: Sequence[HashedFile] = [replace(files[0], path="")] if one else files
        return self.register(replace(model, path=source.resolve().name, address=address, files=tuple(sent)))

    def change(self, model: ModelView, changes: ModelChanges) -> ModelView:
        """Change a version's description, tags, stage and aliases."""
        return self.calls.read(ModelView, "PATCH", _version(model), message=changes)

    def delete(self, name: str, version: int | None = None) -> None:
        """Delete one version, or all of them."""
        path = f"/models/{segment(name, 'model')}"
        self.calls.send("DELETE", path if version is None else f"{path}/versions/{version}")

    def download(
        self, details: ModelDetails, target: Path, progress: Progress = unwatched, overwrite: bool = False
    ) -> Path:
        """Download the model's file or folder below `target`, every file verified; returns its path."""
        model, files = details.model, details.files
        if not files:
            raise NotFound(f"the model {model.name}:{model.version} has no files here", f"It came from {model.path}.")
        one = files[0].path == ""
        address = parse_address(model.address).path if model.address else model.path
        target_path = target / (address.rstrip("/").rpartition("/")[2] if one else _folder_name(model))
        if target_path.exists() and not overwrite:
            raise Conflict(f"{target_path} exists already", "Choose another folder, or allow to overwrite it.")
        for entry in files:
            if entry.path and not is_safe_path(entry.path):
                raise JobError(f"the file {entry.path!r} would be written outside {target}", "Nothing was downloaded.")
        for entry in files:
            route = f"{_version(model)}/files/{entry.path}".rstrip("/")
            self.calls.download(route, target_path / entry.path if entry.path else target_path, progress, entry.sha256)
        return target_path


def registered(reference: str) -> ModelReference:
    """A reference to a registered model; raises JobError where it names files of a run."""
    found = parse(reference)
    if isinstance(found, RunPath):
        raise JobError(
            f"{reference} is not a registered model", "`muster model register NAME --path runs:/…` makes one."
        )
    return found


def registered_input(model: ModelView) -> ModelInput:
    """A version as the input of a job that serves it or scores with it."""
    return ModelInput(f"models:/{model.name}/{model.version}", model.name, str(model.version), last_part(model.path))


def new_model(
    name: str,
    *,
    path: str = "outputs",
    run_id: str | None = None,
    kind: ModelType | None = None,
    version: int | None = None,
    description: str | None = None,
    tags: Mapping[str, str] | None = None,
    properties: Mapping[str, Json] | None = None,
    address: str | None = None,
) -> NewModel:
    """A model to register, validated."""
    with checking():
        return NewModel(
            name, path, run_id, description, tags or {}, properties or {}, kind, address=address, version=version
        )


def _folder_name(model: ModelView) -> str:
    return last_part(model.path) or model.name


def _version(model: ModelView) -> str:
    return f"/models/{segment(model.name, 'model')}/versions/{model.version}"
