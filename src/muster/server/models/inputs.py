"""Models and files of runs as inputs of jobs: their files get a folder and their version is fixed before queueing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from muster import errors
from muster.job.parts import Input
from muster.models.references import ModelReference, RunPath, is_model_input, parse
from muster.server.context import Context
from muster.server.models import content, registry
from muster.wire.codec import Json
from muster.wire.models import MODEL_TYPES


def unplaced(spec: Mapping[str, Json]) -> Sequence[str]:
    """The inputs of a job document that are models or files of runs, by name."""
    return [name for name, item in _inputs(spec).items() if _reference(item) is not None]


def placed(context: Context, spec: Mapping[str, Json], names: Sequence[str]) -> Mapping[str, Json]:
    """The same job, once the files of those inputs are where nodes can read them. Takes time."""
    given = _inputs(spec)
    changed: dict[str, Json] = {**given}
    for name in names:
        item = given[name]
        assert isinstance(item, Mapping)
        try:
            changed[name] = {**item, **_placed(context, item)}
        except errors.MusterError as error:
            raise errors.JobError(f"inputs.{name}: {error.message}", error.hint) from error
    return {**spec, "inputs": changed}


def settled(connection: Connection, item: Input) -> Input:
    """An input with the version of its model fixed; a single file is passed to the job as a file."""
    reference = parse(item.path or "")
    if isinstance(reference, RunPath):
        raise errors.JobError(f"{item.path} has no place yet", "Submit the job again.")
    model = registry.resolve(connection, reference)
    if item.type in MODEL_TYPES and item.type not in ("custom_model", model.type):
        raise errors.JobError(
            f"{item.path} is a {model.type}, and the job wants a {item.type}", f"Write `type: {model.type}`."
        )
    one = [entry.path for entry in registry.files(connection, model)] == [""]
    kind = "uri_file" if one else item.type if item.type in MODEL_TYPES else model.type
    return item.model_copy(update={"path": f"models:/{model.name}/{model.version}", "type": kind})


def _placed(context: Context, item: Mapping[str, Json]) -> Mapping[str, Json]:
    reference = _reference(item)
    if isinstance(reference, RunPath):
        address, one = content.run_files(context, reference.run, reference.path)
        return {"path": address, "type": "uri_file" if one else "uri_folder"}
    assert reference is not None
    model = content.settle(context, context.database.read_now(lambda c: registry.resolve(c, reference)))
    return {"path": f"models:/{model.name}/{model.version}"}


def _reference(item: Json) -> ModelReference | RunPath | None:
    if not isinstance(item, Mapping):
        return None
    path, kind = item.get("path"), item.get("type")
    if not isinstance(path, str) or not is_model_input(path, kind if isinstance(kind, str) else ""):
        return None
    return parse(path)


def _inputs(spec: Mapping[str, Json]) -> Mapping[str, Json]:
    given = spec.get("inputs")
    return given if isinstance(given, Mapping) else {}
