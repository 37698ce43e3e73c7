"""Registered models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from muster.wire.codec import Json
from muster.wire.message import check_name, wire


@wire
class NewModel:
    """The body of `POST models`: the next version of a model."""

    name: str
    path: str = "outputs"
    run_id: str | None = None
    description: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name(self.name)


@wire
class ModelView:
    """One version of a model."""

    name: str
    version: int
    run_id: str | None
    path: str
    """Below the run's files."""
    description: str | None
    tags: Mapping[str, str]
    properties: Mapping[str, Json]
    created_at: float
