"""Outputs of completed runs that register themselves as models."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from muster import errors
from muster.host import clock
from muster.job import rules
from muster.job.parts import Output
from muster.models.references import ModelReference
from muster.server.context import Context
from muster.server.database.connection import Transaction
from muster.server.database.records import add_event
from muster.server.models import content, registry
from muster.wire.codec import Json
from muster.wire.models import MODEL_TYPES, ModelView
from muster.wire.stream import Note

log = logging.getLogger(__name__)


def check(output: Output) -> None:
    """Refuse an output that could not be registered when the run has completed."""
    if output.name is None or output.type not in MODEL_TYPES:
        return
    if not rules.RUN_NAME.fullmatch(output.name) or len(output.name) > 64:
        raise errors.JobError(
            f"{output.name!r} cannot be the name of a model", "Use letters, digits, '_', '.' and '-', at most 64."
        )
    if output.version is not None and not (output.version.isdecimal() and 0 < int(output.version) < 10**9):
        raise errors.JobError(
            f"the version {output.version!r} of a model is no number", "Leave it out for the next one."
        )


def register(
    context: Context, transaction: Transaction, run_id: str, spec: Mapping[str, Json], user: str | None
) -> None:
    """Register the models that a completed run wrote; their files are examined afterwards."""
    declared = spec.get("outputs")
    for name, item in declared.items() if isinstance(declared, Mapping) else ():
        output = Output.model_validate(item, strict=False)
        if output.name is None or output.type not in MODEL_TYPES:
            continue
        try:
            made = _add(transaction, run_id, name, output, user)
        except errors.MusterError as error:
            said = f"output {name} was not registered as the model {output.name}: {error}"
            add_event(transaction, run_id, Note("error", said, clock.now()))
            continue
        text = f"output {name} is the model {made.name}:{made.version}"
        add_event(transaction, run_id, Note("info", text, clock.now()))
        transaction.after_commit.append(partial(_settle_later, context, made))


def _add(transaction: Transaction, run_id: str, name: str, output: Output, user: str | None) -> ModelView:
    assert output.name is not None
    version = None if output.version is None else int(output.version)
    if version is not None and any(
        model.version == version for model in registry.list_models(transaction.connection, output.name)
    ):
        raise errors.Conflict(f"there is a version {version} already", "Leave the version out for the next one.")
    made = registry.add_model(
        transaction, output.name, f"outputs/{name}", run_id, None, {}, {}, kind=output.type, version=version, user=user
    )
    if output.path is None:
        return made
    registry.set_address(transaction, made, output.path)
    return registry.resolve(transaction.connection, ModelReference(made.name, made.version))


def _settle_later(context: Context, model: ModelView) -> None:
    context.hub.in_background(partial(_settle, context, model))


def _settle(context: Context, model: ModelView) -> None:
    try:
        content.settle(context, model)
    except errors.MusterError as error:
        # It is retried when somebody asks for the model.
        log.warning("the model %s:%s has no place yet: %s", model.name, model.version, error)
