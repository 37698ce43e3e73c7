"""Registered models, under v1's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.client.models import Models, new_model
from muster.errors import Conflict, JobError
from muster.models.references import ModelReference
from muster.sdk.connected import Connected
from muster.sdk.webservice import DeploymentConfiguration, InferenceConfig, Webservice, deploy
from muster.wire.codec import Json, to_json
from muster.wire.models import MODEL_TYPES, ModelChanges, ModelDetails, ModelLineage, ModelType, ModelView


class Framework:
    """Names of frameworks in v1 scripts."""

    CUSTOM = "Custom"
    ONNX = "Onnx"
    PYTORCH = "PyTorch"
    SCIKITLEARN = "ScikitLearn"
    TENSORFLOW = "TensorFlow"
    MULTI = "Multi"


class Model:
    """One version of a model, with the run that it came from."""

    Framework = Framework

    def __init__(
        self,
        workspace: Connected,
        name: str | None = None,
        id: str | None = None,
        version: int | None = None,
        alias: str | None = None,
    ) -> None:
        if name is None and id is not None:
            name, _, number = id.rpartition(":")
            version = int(number)
        reference = ModelReference(name or "", None if version is None else int(version), alias)
        self._set(workspace, Models(workspace.client.calls).details(str(reference)).model)

    @classmethod
    def _of(cls, workspace: Connected, view: ModelView) -> Model:
        model = cls.__new__(cls)
        model._set(workspace, view)
        return model

    def _set(self, workspace: Connected, view: ModelView) -> None:
        self.workspace = workspace
        self._view = view
        self.name = view.name
        self.version = view.version
        self.path = view.path
        self.run_id = view.run_id
        self.description = view.description
        self.tags = dict(view.tags)
        self.properties = dict(view.properties)
        self.created_time = view.created_at
        self.type = view.type
        self.stage = view.stage
        self.aliases = list(view.aliases)
        self.size = view.size

    @property
    def id(self) -> str:
        """`NAME:VERSION`."""
        return f"{self.name}:{self.version}"

    @property
    def model_framework(self) -> str | None:
        """The framework that it was registered with."""
        return self.tags.get("model_framework")

    @property
    def url(self) -> str:
        """The model's address for jobs."""
        return f"models:/{self.name}/{self.version}"

    @property
    def lineage(self) -> ModelLineage:
        """The origin of the model: the run, its code, data and environment, and its metrics."""
        return self._details().lineage

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
        """Register a local file or folder; it is copied into the workspace."""
        model = new_model(
            model_name,
            kind=_type(kwargs.get("type")),
            description=description,
            tags={str(key): str(value) for key, value in {**framework_tags(kwargs), **(tags or {})}.items()},
            properties=properties,
        )
        return Model._of(workspace, Models(workspace.client.calls).upload(Path(model_path).expanduser(), model))

    @staticmethod
    def deploy(
        workspace: Connected,
        name: str,
        models: Sequence[Model],
        inference_config: InferenceConfig | None = None,
        deployment_config: DeploymentConfiguration | None = None,
        deployment_target: Any = None,
        overwrite: bool = False,
        show_output: bool = False,
    ) -> Webservice:
        """Deploy a model and a script as a service; `wait_for_deployment()` waits until it answers."""
        return deploy(workspace, name, models, inference_config, deployment_config, deployment_target, overwrite)

    @staticmethod
    def list(
        workspace: Connected, name: str | None = None, tags: Any = None, latest: bool = False, **kwargs: Any
    ) -> list[Model]:
        """Models of the workspace; with `latest` only the newest version of each."""
        found = Models(workspace.client.calls).list(name, _wanted_tags(tags))
        run_id = kwargs.get("run_id")
        models = [Model._of(workspace, view) for view in found if run_id is None or view.run_id == run_id]
        if not latest:
            return models
        newest: dict[str, Model] = {}
        for model in models:
            newest.setdefault(model.name, model)
        return [*newest.values()]

    @staticmethod
    def get_model_path(model_name: str, version: int | None = None, _workspace: Connected | None = None) -> str:
        """The file or folder of a model, fetched into `azureml-models/NAME/VERSION` unless it is there."""
        if _workspace is None:
            raise JobError("get_model_path needs a workspace here", "Give _workspace=Workspace.from_config().")
        model = Model(_workspace, model_name, version=version)
        folder = Path("azureml-models") / model.name / str(model.version)
        known = [*folder.iterdir()] if folder.is_dir() else []
        return str(known[0]) if known else model.download(str(folder))

    def download(self, target_dir: str = ".", exist_ok: bool = False, exists_ok: bool | None = None) -> str:
        """The model's file or folder in `target_dir`; returns its path."""
        try:
            overwrite = bool(exist_ok or exists_ok)
            return str(self._models.download(self._details(), Path(target_dir), overwrite=overwrite))
        except Conflict as error:
            raise Conflict(error.message, "Pass exist_ok=True, or choose another folder.") from error

    def update(self, tags: Mapping[str, Json] | None = None, description: str | None = None, **kwargs: Any) -> None:
        """Set the description, and replace the tags."""
        texts: dict[str, str | None] = dict.fromkeys(self.tags) if tags is not None else {}
        texts.update({str(key): str(value) for key, value in (tags or {}).items()})
        self._change(ModelChanges(description=description, tags=texts))

    def add_tags(self, tags: Mapping[str, Json]) -> None:
        """Set tags; others stay."""
        self._change(ModelChanges(tags={str(key): str(value) for key, value in tags.items()}))

    def remove_tags(self, tags: Any) -> None:
        """Remove tags by their names."""
        self._change(ModelChanges(tags={str(key): None for key in tags}))

    def add_properties(self, properties: Mapping[str, Json]) -> None:
        """Add the properties as tags: those from the registration stay."""
        self.add_tags(properties)

    def serialize(self) -> dict[str, Json]:
        """Everything known about the model, as JSON."""
        said: dict[str, Json] = to_json(self._view)
        return said

    @staticmethod
    def package(*args: Any, **kwargs: Any) -> None:
        """Refused: services run in the environment that they name, without their own image."""
        raise JobError("a model is not packed into an image", "Deploy it with Model.deploy, or `muster endpoint`.")

    @staticmethod
    def profile(*args: Any, **kwargs: Any) -> None:
        """Refused: the resources that a service needs are measured while it runs."""
        raise JobError("a model is not profiled", "Deploy it; `muster endpoint show` has its times and memory.")

    def set_alias(self, alias: str) -> None:
        """Have an alias point to this version."""
        self._change(ModelChanges(aliases=(alias,)))

    def delete(self) -> None:
        """Delete this version with its bytes; its run stays."""
        self._models.delete(self.name, self.version)

    def _change(self, changes: ModelChanges) -> None:
        self._set(self.workspace, self._models.change(self._view, changes))

    def _details(self) -> ModelDetails:
        return self._models.details(str(ModelReference(self.name, self.version)))

    @property
    def _models(self) -> Models:
        return Models(self.workspace.client.calls)

    def __repr__(self) -> str:
        return f"Model(name={self.name!r}, version={self.version})"


def framework_tags(given: Mapping[str, Json]) -> dict[str, str]:
    """v1's framework of a model and its version, which are stored as tags."""
    names = ("model_framework", "model_framework_version")
    return {name: str(given[name]) for name in names if given.get(name) is not None}


def _type(given: Any) -> ModelType | None:
    if given is None:
        return None
    for known in MODEL_TYPES:
        if known == given:
            return known
    raise JobError(f"a model cannot be of type {given!r}", f"Types are {', '.join(MODEL_TYPES)}.")


def _wanted_tags(tags: Any) -> list[str]:
    """v1's filter: names, and `[name, value]` pairs."""
    return [tag if isinstance(tag, str) else "=".join(map(str, tag)) for tag in tags or ()]
