"""Registered models: `muster model …`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from muster.cli.commands.files import Meter
from muster.cli.console import columns, notice, say
from muster.cli.options import Json, argument, option, print_json, print_result, switch
from muster.cli.overrides import parse_pairs
from muster.cli.views import models as views
from muster.client.connect import connect, connect_to_read
from muster.client.models import Models, new_model, registered
from muster.client.storage import local_files
from muster.errors import JobError, UserError
from muster.job.modelfile import ModelFile, read_model_file
from muster.job.rules import is_address
from muster.models.references import RunPath, is_model_input, parse
from muster.storage.addresses import parse_address
from muster.wire.models import MODEL_TYPES, STAGES, ModelChanges, ModelType, ModelView, NewModel, Stage


def complete_models(incomplete: str) -> Iterator[str]:
    """Models of a running server."""
    try:
        found = Models(connect(start=False).calls).list()
    except Exception:
        return
    words = dict.fromkeys(word for model in found for word in (model.name, f"{model.name}:{model.version}"))
    yield from (word for word in words if word.startswith(incomplete))


Model = Annotated[
    str, argument("MODEL", "NAME, NAME:VERSION, NAME@ALIAS or models:/NAME/VERSION.", autocompletion=complete_models)
]


def register(
    name: Annotated[str | None, argument("NAME", "The model's name.")] = None,
    path: Annotated[
        str | None, option("PATH", "A local file or folder, runs:/RUN/PATH, or an address in a datastore.", "--path")
    ] = None,
    file: Annotated[Path | None, option("FILE", "A model file (.yml); options win over it.", "--file", "-f")] = None,
    version: Annotated[int | None, option("N", "Its version (default: the next number).", min=1)] = None,
    kind: Annotated[str | None, option("TYPE", f"{', '.join(MODEL_TYPES)} (default: as found).", "--type")] = None,
    description: Annotated[str | None, option("TEXT", "A description.")] = None,
    tags: Annotated[list[str] | None, option("K=V", "A tag; repeatable.", "--tag", "-t")] = None,
    alias: Annotated[list[str] | None, option("ALIAS", "An alias that points to it; repeatable.", "--alias")] = None,
    as_json: Json = False,
) -> None:
    """Register the next version of a model: a file or folder of this machine, of a run, or of a datastore.

    The workspace keeps its own copy of the files, so that they never change; their sizes and hashes are
    kept, and safetensors, TorchScript, torch.export, ONNX, SavedModel and Keras files are recognised.

    \b
    Examples:
      muster model register resnet50 --path ./model.pt
      muster model register resnet50 --path runs:/@latest/outputs/model.pt --alias champion
      muster model register -f model.yml
    """
    model_file = read_model_file(file) if file is not None else None
    model, source = _wanted(model_file, name, path, version, kind, description, parse_pairs("--tag", tags or []))
    for text in model_file.notices if model_file is not None else ():
        notice(text)
    models = Models(connect().calls)
    made = _register(models, model, source)
    stage = model_file.stage if model_file is not None else None
    if alias or stage:
        made = models.change(made, ModelChanges(stage=stage, aliases=tuple(alias or ())))
    if as_json:
        print_json(made)
        return
    say(f"{made.reference}: {views.amount(made)}")


def list_(
    name: Annotated[str | None, argument("NAME", "Show all versions of this model.")] = None,
    tags: Annotated[list[str] | None, option("K=V", "Only with this tag; repeatable.", "--tag", "-t")] = None,
    as_json: Json = False,
) -> None:
    """List models: the newest version of each, or all versions of one.

    \b
    Examples:
      muster model list
      muster model list resnet50
    """
    models = Models(connect_to_read().calls)
    found = models.list(name, tags or ())
    if name is not None and not found and not tags:
        # Raises an error that lists what exists.
        models.details(name)
    if name is None:
        newest: dict[str, ModelView] = {}
        for item in found:
            newest.setdefault(item.name, item)
        found = list(newest.values())
    if not found and not as_json:
        say("no models" + (" like that" if tags else " yet; `muster model register NAME --path …` makes one"))
        return
    print_result(found, views.listing(found, time.time(), columns(sys.stdout)), as_json)


def show(
    model: Model,
    files: Annotated[bool, switch("List its files with their hashes.", "--files")] = False,
    as_json: Json = False,
) -> None:
    """Show one version of a model: its files and formats, its stage and aliases, and the run that it came from.

    \b
    Examples:
      muster model show resnet50
      muster model show resnet50@champion --files
    """
    found = Models(connect_to_read().calls).details(model)
    print_result(found, views.description(found, time.time(), files, columns(sys.stdout)), as_json)


def download(
    model: Model,
    to: Annotated[Path, option("DIR", "Target folder.", "--to")] = Path(),
    overwrite: Annotated[bool, switch("Overwrite files that exist.", "--overwrite")] = False,
    as_json: Json = False,
) -> None:
    """Copy a version's file or folder here; every file is verified.

    \b
    Examples:
      muster model download resnet50 --to ./models
    """
    models = Models(connect_to_read().calls)
    details = models.details(model)
    meter = Meter(details.model.size or 0)
    saved_at = models.download(details, to, meter.add, overwrite)
    meter.end()
    print_result({"path": str(saved_at), "bytes": meter.done}, [str(saved_at)], as_json)


def compare(left: Model, right: Model, as_json: Json = False) -> None:
    """Show how two versions differ: run, code, data, environment, files, metrics.

    \b
    Examples:
      muster model compare resnet50:1 resnet50:2
    """
    models = Models(connect_to_read().calls)
    one, other = models.details(left), models.details(right)
    found = views.differences(one, other)
    if as_json:
        print_json({"left": one.model, "right": other.model, "differences": [vars(item) for item in found]})
        return
    if not found:
        say("no differences: the same bytes, from the same run")
        return
    print_result(found, views.comparison(one.model, other.model, found, columns(sys.stdout)), False)


def promote(
    model: Model,
    alias: Annotated[list[str] | None, option("ALIAS", "Have this alias point to it; repeatable.", "--alias")] = None,
    stage: Annotated[str | None, option("STAGE", f"{', '.join(STAGES)}.", "--stage")] = None,
    archive: Annotated[bool, switch("Archive the versions that have the stage so far.", "--archive-others")] = False,
    remove: Annotated[list[str] | None, option("ALIAS", "Take this alias away; repeatable.", "--remove-alias")] = None,
    tags: Annotated[list[str] | None, option("K=V", "Set a tag; repeatable.", "--tag", "-t")] = None,
    as_json: Json = False,
) -> None:
    """Give a version an alias or a stage, by which jobs and scripts name it.

    \b
    Examples:
      muster model promote resnet50:2 --alias champion
      muster model promote resnet50:2 --stage Production --archive-others
    """
    if not (alias or stage or remove or tags):
        raise UserError("there is nothing to change", "Give --alias, --stage, --remove-alias or --tag.")
    models = Models(connect().calls)
    found = models.details(model).model
    pairs: Mapping[str, str | None] | None = parse_pairs("--tag", tags) if tags else None
    changes = ModelChanges(
        None, pairs, _stage(stage), archive, tuple(alias) if alias else None, tuple(remove or ())
    )  # fmt: skip
    made = models.change(found, changes)
    if as_json:
        print_json(made)
        return
    named = f", {', '.join(f'@{item}' for item in made.aliases)}" if made.aliases else ""
    say(f"{made.reference}: stage {made.stage}{named}")


def delete(
    model: Model,
    all_versions: Annotated[bool, switch("Delete every version of it.", "--all-versions")] = False,
    yes: Annotated[bool, switch("Do not ask.", "--yes", "-y")] = False,
    as_json: Json = False,
) -> None:
    """Delete a version of a model with its bytes; the run that it came from stays.

    \b
    Examples:
      muster model delete resnet50:1 --yes
      muster model delete resnet50 --all-versions --yes
    """
    models = Models(connect().calls)
    found = models.details(model).model
    wanted = registered(model)
    if all_versions:
        what = f"all versions of {found.name}"
    elif wanted.version is None and wanted.alias is None and wanted.stage is None:
        raise UserError(
            f"{model} names no version", f"Write {found.name}:{found.version}, or give --all-versions for all of them."
        )
    else:
        what = f"{found.name}:{found.version}"
    pointing = f" ({', '.join(f'@{item}' for item in found.aliases)} point to it)" if found.aliases else ""
    if not yes and not typer.confirm(f"Delete {what}{pointing}?"):
        raise typer.Exit(1)
    models.delete(found.name, None if all_versions else found.version)
    if as_json:
        print_json({"deleted": found, "all_versions": all_versions})
        return
    say(f"{what} is deleted")


def _wanted(
    model_file: ModelFile | None,
    name: str | None,
    path: str | None,
    version: int | None,
    kind: str | None,
    description: str | None,
    tags: Mapping[str, str],
) -> tuple[NewModel, str]:
    """The model to register and the source of its bytes; options win over the file."""
    name = name or (model_file.name if model_file else None)
    path = path or (model_file.path if model_file else None)
    if name is None or path is None:
        missing = "a name" if name is None else "--path"
        raise UserError(f"{missing} is missing", "Write `muster model register NAME --path PATH`, or -f model.yml.")
    model = new_model(
        name,
        kind=_type(kind) or (model_file.type if model_file else None),
        version=version or (model_file.version if model_file else None),
        description=description or (model_file.description if model_file else None),
        tags={**(model_file.tags if model_file else {}), **tags},
        properties=model_file.properties if model_file else {},
    )
    return model, path


def _register(models: Models, model: NewModel, source: str) -> ModelView:
    if not is_address(source):
        folder = Path(source).expanduser()
        if not folder.exists():
            raise JobError(f"there is no file or folder {source}", "Correct --path.")
        meter = Meter(sum(file.stat().st_size for _, file in local_files(folder)))
        made = models.upload(folder, model, meter.add)
        meter.end()
        return made
    if is_model_input(source, ""):
        return _from_run(models, model, source)
    address = str(parse_address(source))
    return models.register(_with(model, path=address.rstrip("/").rpartition("/")[2], address=address))


def _from_run(models: Models, model: NewModel, source: str) -> ModelView:
    found = parse(source)
    if isinstance(found, RunPath):
        run = connect().run(found.run)
        names = [file.path for file in run.files]
        path = found.path
        if path and not any(item == path or item.startswith(f"{path}/") for item in names):
            listed = ", ".join(sorted({item.rpartition("/")[0] or item for item in names})[:10]) or "none"
            raise JobError(f"run {run.id} keeps no file or folder {path!r}", f"It keeps: {listed}.")
        return models.register(_with(model, path=path, run_id=run.id))
    origin = models.details(source).model
    return models.register(_with(model, path=origin.path, run_id=origin.run_id, address=origin.address))


def _with(model: NewModel, *, path: str, run_id: str | None = None, address: str | None = None) -> NewModel:
    return NewModel(
        model.name, path, run_id, model.description, model.tags, model.properties, model.type, address, None,
        model.version,
    )  # fmt: skip


def _type(text: str | None) -> ModelType | None:
    if text is None:
        return None
    for known in MODEL_TYPES:
        if known == text:
            return known
    raise UserError(f"--type {text}: a model has no such type", f"Types are {', '.join(MODEL_TYPES)}.")


def _stage(text: str | None) -> Stage | None:
    if text is None:
        return None
    for known in STAGES:
        if known.lower() == text.lower():
            return known
    raise UserError(f"--stage {text}: there is no such stage", f"Stages are {', '.join(STAGES)}.")


COMMANDS = (register, list_, show, download, compare, promote, delete)
