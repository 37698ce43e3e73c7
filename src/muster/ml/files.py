"""Files of v2 read in a script: `load_job`, `load_component`, `load_environment`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.job.environmentfile import environment_of
from muster.job.jobfile import read_job_file
from muster.ml.command import Command
from muster.ml.entities import Environment
from muster.ml.values import Value
from muster.wire.codec import Json


def load_job(
    source: str | os.PathLike[str],
    *,
    params_override: Sequence[Mapping[str, Json]] | None = None,
    relative_origin: str | None = None,
) -> Command:
    """A job file as a job that can still be changed; `params_override` is a list of `{"a.b": value}`."""
    document = read_job_file(Path(source))
    values: dict[str, Value] = dict(document.data)
    for override in params_override or ():
        for key, value in override.items():
            values = _with_value(values, key.split("."), value)
    return Command(values, Path(relative_origin) if relative_origin else document.base_dir)


def load_component(source: str | os.PathLike[str], **kwargs: Any) -> Command:
    """A component file; calling what this returns with inputs gives a job."""
    return load_job(source, **kwargs)


def load_environment(source: str | os.PathLike[str]) -> Environment:
    """A file that describes an environment."""
    described = environment_of(Path(source))
    if not isinstance(described, Mapping):
        return Environment(name=None if described is None else str(described))
    return Environment.of(described)


def _with_value(values: Mapping[str, Value], keys: Sequence[str], value: Value) -> dict[str, Value]:
    key, *rest = keys
    if not rest:
        return {**values, key: value}
    inner = values.get(key)
    return {**values, key: _with_value(inner if isinstance(inner, Mapping) else {}, rest, value)}
