"""`muster score`: score data with a model, as a job."""

from __future__ import annotations

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
from muster.client.scoring import data_input, model_input
from muster.errors import JobError, UserError
from muster.job.endpoints.batch_deployment import BatchDeployment, read_batch_deployment
from muster.job.endpoints.batch_job import RESULT, BatchScoring, job_of
from muster.job.explain import make_spec
from muster.job.jobfile import LoadedJob
from muster.job.rules import is_address
from muster.wire.serving.batch import OUTPUT_ACTIONS, BatchSettings, check_output_file

_FORMATS = ("files", "csv", "jsonl", "parquet")


Model = Annotated[str | None, argument("MODEL", "NAME:VERSION, NAME@ALIAS, models:/…, runs:/…, or a local path.")]
Deployment = Annotated[
    Path | None, option("FILE", "A batch deployment (.yml) of Azure ML; options win over it.", "--file", "-f")
]
Data = Annotated[str, option("DATA", "A file or folder, azureml:ASSET:VERSION, or an address.", "--input", "-i")]
Script = Annotated[
    Path | None, option("FILE", "Has init() and run(mini_batch); an MLflow model needs none.", "--script", "-s")
]
Output = Annotated[
    str | None, option("DATA", "A folder here, or an address in a datastore (default: kept with the run).")
]
Nodes = Annotated[int | None, option("N", "Number of nodes.", min=1)]
Procs = Annotated[int | None, option("P", "Processes with a model on each node (1).", min=1)]
Gpus = Annotated[
    float | None, option("G", "GPUs to reserve on each node; below 1: this part of one.", "--gpus-per-node", min=0)
]
BatchSize = Annotated[
    int, option("N", "Files, or rows, in a mini-batch (0: 10 files, 1,000 rows).", "--mini-batch-size", min=0)
]
Format = Annotated[str, option("FORMAT", f"{', '.join(_FORMATS)} (default: as the files are called).", "--format")]
Action = Annotated[str, option("ACTION", f"{', '.join(OUTPUT_ACTIONS)}.", "--output-action")]
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
    data: Data,
    model: Model = None,
    file: Deployment = None,
    script: Script = None,
    output: Output = None,
    nodes: Nodes = None,
    procs: Procs = None,
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
      muster score -f deployment.yml --input ./images
    """
    deployment = read_batch_deployment(file) if file is not None else None
    given = _settings(form, batch, action, output_file, retries, timeout, errors)
    scoring = _scoring(model, data, script, output, given, deployment)
    overrides = Overrides(nodes=nodes, procs=procs or 1, gpus_per_node=gpus_per_node, compute=compute, name=name)
    overrides = replace(overrides, environment=environment, settings=parse_pairs("--set", settings or []))
    if deployment is not None:
        overrides = replace(
            overrides,
            nodes=nodes or deployment.nodes,
            procs=procs or deployment.procs,
            compute=compute or deployment.compute,
        )
    _run(scoring, overrides, output, deployment, file, detach=detach, dry_run=dry_run, as_json=as_json)


def _settings(
    form: str, batch: int, action: str, output_file: str, retries: int, timeout: str, errors: int
) -> BatchSettings:
    """The settings of the options, validated before anything is looked up."""
    _one_of("--format", form, _FORMATS)
    _one_of("--output-action", action, OUTPUT_ACTIONS)
    try:
        check_output_file(output_file)
    except ValueError as error:
        hint = "Give a name such as predictions.csv."
        raise UserError(f"--output-file {output_file}: that is not a file name.", hint) from error
    time_s = float(seconds_of("--batch-timeout", timeout))
    chosen = next(known for known in OUTPUT_ACTIONS if known == action)
    try:
        return BatchSettings("", (), form, batch, chosen, output_file, retries, time_s, errors)
    except ValueError as error:
        raise UserError(str(error), "Correct the option.") from error


def _scoring(
    model: str | None,
    data: str,
    script: Path | None,
    output: str | None,
    given: BatchSettings,
    deployment: BatchDeployment | None,
) -> BatchScoring:
    settings, code = _with_file(given, deployment), deployment.code if deployment is not None else None
    if script is not None:
        if not script.is_file():
            raise JobError(f"there is no script {script}", "Correct --script.")
        code, settings = script.resolve().parent, replace(settings, script=script.name)
    model = model or (deployment.model if deployment is not None else None)
    if model is None and not settings.script:
        raise UserError("there is neither a model nor a script", "Write `muster score MODEL --input DATA`, or -f FILE.")
    client = connect()
    path, kind = data_input(client, data)
    source = None if model is None else model_input(client, model, bool(settings.script))
    kept = output if output and is_address(output) else None
    variables = deployment.variables if deployment is not None else {}
    return BatchScoring(path, kind, source, code, settings, kept, variables=variables)


def _with_file(given: BatchSettings, deployment: BatchDeployment | None) -> BatchSettings:
    """The settings of a deployment's file, overridden by options that differ from their default."""
    if deployment is None:
        return given
    usual = BatchSettings()
    chosen = {name: value for name, value in vars(given).items() if value != getattr(usual, name)}
    return replace(deployment.settings, **chosen)


def _run(
    scoring: BatchScoring,
    overrides: Overrides,
    output: str | None,
    deployment: BatchDeployment | None,
    file: Path | None,
    *,
    detach: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    job = job_of(scoring)
    if deployment is not None:
        job = {**job, "environment": deployment.environment}
    base = Path.cwd() if file is None else file.resolve().parent
    loaded = LoadedJob(make_spec(with_overrides(job, overrides, source="script")), (), base)
    if dry_run:
        find("planning.dry_run:show_plan")(loaded, as_json)
        return
    local = output is not None and not is_address(output)
    if local and detach:
        notice(f"--output {output} is a folder here: `muster download RUN outputs/{RESULT}` fetches the results later")
    client, view = begin(loaded)
    code = follow(client, view, detach=detach, quiet=False, as_json=as_json)
    if code == 0 and local and not detach:
        fetch_results(client, view.id, Path(output or "."))
    raise typer.Exit(code)


def fetch_results(client: Client, run_id: str, target: Path) -> None:
    """Download the results of the run that has just ended into a local folder."""
    run = client.run(run_id)
    prefix = f"outputs/{RESULT}/"
    found = [file.path for file in run.files if file.path.startswith(prefix)]
    for path in found:
        client.download(run.id, path, target / path.removeprefix(prefix))
    say(f"{len(found)} file{'' if len(found) == 1 else 's'} in {target}")


def _one_of(option_name: str, text: str, allowed: tuple[str, ...]) -> None:
    if text and text not in allowed:
        raise UserError(f"{option_name} {text}: there is no such choice.", f"Choose one of {', '.join(allowed)}.")
