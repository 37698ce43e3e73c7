"""`muster score`: score data with a model, as a job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from muster.cli.commands.run import begin, follow
from muster.cli.console import notice, say
from muster.cli.lazy import find
from muster.cli.options import Json, argument, option, seconds_of, switch
from muster.cli.overrides import Overrides, parse_pairs, with_overrides
from muster.client.api import Client
from muster.client.connect import connect
from muster.client.models import Models
from muster.client.scoring import RESULT, BatchScoring, BatchSettings, data_type, job_of, settings_json
from muster.client.storage import Storage
from muster.errors import JobError, UserError
from muster.job.explain import make_spec
from muster.job.jobfile import LoadedJob
from muster.job.rules import is_address
from muster.models.references import ModelReference, parse
from muster.storage.addresses import parse_address

_FORMATS = ("files", "csv", "jsonl", "parquet")
_ACTIONS = ("append_row", "per_file", "summary_only")


Model = Annotated[str, argument("MODEL", "NAME:VERSION, NAME@ALIAS, models:/…, runs:/…, or a local path.")]
Data = Annotated[str, option("DATA", "A file or folder, azureml:ASSET:VERSION, or an address.", "--input", "-i")]
Script = Annotated[
    Path | None, option("FILE", "Has init() and run(mini_batch); an MLflow model needs none.", "--script", "-s")
]
Output = Annotated[
    str | None, option("DATA", "A folder here, or an address in a datastore (default: kept with the run).")
]
Nodes = Annotated[int | None, option("N", "Number of nodes.", min=1)]
Procs = Annotated[int, option("P", "Processes with a model on each node.", min=1)]
Gpus = Annotated[int | None, option("G", "GPUs to reserve on each node.", min=0)]
BatchSize = Annotated[
    int, option("N", "Files, or rows, in a mini-batch (0: 10 files, 1,000 rows).", "--mini-batch-size", min=0)
]
Format = Annotated[str, option("FORMAT", f"{', '.join(_FORMATS)} (default: as the files are called).", "--format")]
Action = Annotated[str, option("ACTION", f"{', '.join(_ACTIONS)}.", "--output-action")]
OutputFile = Annotated[str, option("NAME", "The file of append_row.", "--output-file")]
Retries = Annotated[int, option("N", "Further tries of a mini-batch that failed.", "--retries", min=0)]
BatchTimeout = Annotated[str, option("TIME", "For one mini-batch: 90, 15m.", "--batch-timeout")]
Threshold = Annotated[int, option("N", "Items that may fail; -1: any number.", "--error-threshold", min=-1)]
Compute = Annotated[str | None, option("NAME", "The cluster to run on.")]
Environment = Annotated[str | None, option("NAME|FILE|none", "What the ranks run in.")]
Name = Annotated[str | None, option("NAME", "A name for the run.")]
Keys = Annotated[list[str] | None, option("KEY=VALUE", "A key of the job; repeatable.", "--set")]
Detach = Annotated[bool, switch("Print the run's id and return at once.", "--detach", "-d")]
DryRun = Annotated[bool, switch("Print what every rank would run, and run nothing.", "--dry-run")]


def score(
    model: Model,
    data: Data,
    script: Script = None,
    output: Output = None,
    nodes: Nodes = None,
    procs: Procs = 1,
    gpus_per_node: Gpus = None,
    batch: BatchSize = 0,
    form: Format = "",
    action: Action = "append_row",
    output_file: OutputFile = "predictions.csv",
    retries: Retries = 2,
    timeout: BatchTimeout = "60",
    errors: Threshold = -1,
    compute: Compute = None,
    environment: Environment = None,
    name: Name = None,
    settings: Keys = None,
    detach: Detach = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Score files or tables with a model, on any number of processes.

    Each input is in the result once, in the order of the input. Folders of CSV, JSON lines or Parquet files are read as
    tables, a mini-batch being so many rows (a DataFrame where pandas is there); of other files run() gets the
    paths. It returns an element for each success. What fails is tried again, what was scored stays scored
    when a rank, a node or the server dies.

    \b
    Examples:
      muster score ./model.pt --script score.py --input ./images --output ./predictions
      muster score ./model.pt --script score.py --input ./images --procs 2 --mini-batch-size 4
    """
    time_s = float(seconds_of("--batch-timeout", timeout))
    given = BatchSettings("", (), form, batch, action, output_file, retries, time_s, errors)
    scoring = _scoring(model, data, script, output, given)
    asked = Overrides(nodes=nodes, procs=procs, gpus_per_node=gpus_per_node, compute=compute, name=name)
    asked = replace(asked, environment=environment, settings=parse_pairs("--set", settings or []))
    _run(scoring, asked, output, detach=detach, dry_run=dry_run, as_json=as_json)


def _run(
    scoring: BatchScoring, asked: Overrides, output: str | None, *, detach: bool, dry_run: bool, as_json: bool
) -> None:
    job = job_of(scoring, json.dumps(settings_json(scoring.settings)))
    loaded = LoadedJob(make_spec(with_overrides(job, asked, source="script")), (), Path.cwd())
    if dry_run:
        find("planning.dry_run:show_plan")(loaded, as_json)
        return
    local = output is not None and not is_address(output)
    if local and detach:
        notice(f"--output {output} is a folder here: `muster download RUN outputs/{RESULT}` fetches the results later")
    client, view = begin(loaded)
    code = follow(client, view, detach=detach, quiet=False, as_json=as_json)
    if code == 0 and local and not detach:
        _fetch(client, view.id, Path(output or "."))
    raise typer.Exit(code)


def _checked(settings: BatchSettings, script: Path | None) -> BatchSettings:
    """Refuse what no scoring can do, before anything is looked up."""
    _one_of("--format", settings.format, _FORMATS)
    _one_of("--output-action", settings.output_action, _ACTIONS)
    name = settings.output_file
    if Path(name).name != name or name.startswith("."):
        raise UserError(f"--output-file {name}: that is no file name.", "Give a name such as predictions.csv.")
    if script is not None and not script.is_file():
        raise JobError(f"there is no script {script}", "Correct --script.")
    return replace(settings, script="" if script is None else script.name)


def _scoring(model: str, data: str, script: Path | None, output: str | None, settings: BatchSettings) -> BatchScoring:
    settings = _checked(settings, script)
    client = connect()
    if not is_address(model) and not Path(model).expanduser().exists():
        found = Models(client.calls).details(model).model
        if script is None and found.type != "mlflow_model":
            raise JobError(
                f"{model} is a {found.type}, which says not how to be run", "Give --script with init() and run()."
            )
        model = f"models:/{found.name}/{found.version}"
    elif is_address(model) and model.startswith("azureml:") and not model.startswith("azureml://"):
        reference = parse(model)
        assert isinstance(reference, ModelReference)
        model = str(reference)
    elif not is_address(model):
        model = str(Path(model).expanduser().resolve())
    is_file = False
    if is_address(data) and (location := parse_address(data)).kind == "datastore":
        is_file = Storage(client.calls).is_file(location.store, location.path)
    path = data if is_address(data) else str(Path(data).expanduser().resolve())
    return BatchScoring(
        path, data_type(path, is_file), model, script, settings, output if output and is_address(output) else None
    )


def _fetch(client: Client, run_id: str, target: Path) -> None:
    """The results of the run that has just ended, into a folder here."""
    run = client.run(run_id)
    prefix = f"outputs/{RESULT}/"
    found = [file.path for file in run.files if file.path.startswith(prefix)]
    for path in found:
        client.download(run.id, path, target / path.removeprefix(prefix))
    say(f"{len(found)} file{'' if len(found) == 1 else 's'} in {target}")


def _one_of(option_name: str, text: str, allowed: tuple[str, ...]) -> None:
    if text and text not in allowed:
        raise UserError(f"{option_name} {text}: there is no such choice.", f"Choose one of {', '.join(allowed)}.")
