"""Models as inputs of jobs that serve or score, and their names for scripts that look for them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.wire.codec import Json

MODELS = "SERVED_MODELS"
"""The variable with the models for `muster.scoring`: input to name, version and folder."""


@dataclass(frozen=True)
class ModelInput:
    """One model of a job."""

    source: str
    """A reference with a version, an address, or a local path."""
    name: str = ""
    version: str = "1"
    own_name: str = ""
    """The original name of the file or folder: a folder has this name below AZUREML_MODEL_DIR."""

    @staticmethod
    def at(path: str) -> ModelInput:
        """A model that is not registered."""
        own = last_part(path)
        return ModelInput(path, own, "1", own)


def last_part(path: str) -> str:
    """The name of a file or folder, from a path or an address."""
    return path.rstrip("/").rpartition("/")[2]


def inputs_of(models: Sequence[ModelInput]) -> dict[str, Json]:
    """The inputs of a job with these models."""
    return {key: {"type": "custom_model", "path": model.source} for key, model in _keyed(models).items()}


def variables_of(models: Sequence[ModelInput]) -> dict[str, Json]:
    """The variables of a job with these models."""
    told = {key: [model.name, model.version, model.own_name] for key, model in _keyed(models).items()}
    return {MODELS: json.dumps(told)} if told else {}


def _keyed(models: Sequence[ModelInput]) -> Mapping[str, ModelInput]:
    return {"model" if number == 1 else f"model_{number}": model for number, model in enumerate(models, 1)}
