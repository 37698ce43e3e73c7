"""`muster serve`: answer requests with a model, as a run that does not end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from muster.cli.commands.models.score import Compute, Detach, DryRun, Environment, Gpus, Keys, Name
from muster.cli.commands.run import begin, follow
from muster.cli.console import say
from muster.cli.lazy import find
from muster.cli.options import Json, argument, option
from muster.cli.overrides import Overrides, parse_pairs, with_overrides
from muster.client.api import Client
from muster.client.connect import connect
from muster.client.models import Models, registered_input
from muster.client.serving import LOOPBACK, SERVICE, ServeSettings, Serving, job_of, settings_json
from muster.engines.registry import DEFAULT
from muster.errors import JobError
from muster.job.endpoints.models import ModelInput
from muster.job.explain import make_spec
from muster.job.jobfile import LoadedJob
from muster.job.rules import is_address
from muster.models.references import RunPath, parse
from muster.wire.runs import RunView

Target = Annotated[
    str, argument("SCRIPT|MODEL", "A script with init() and run(), or a model: NAME:VERSION, models:/…, a path.")
]
WithModel = Annotated[str | None, option("MODEL", "The model of a script: NAME:VERSION, models:/…, a path.", "--model")]
Port = Annotated[int, option("PORT", "Where it listens on its node.", "--port", min=1, max=65535)]
Host = Annotated[str, option("ADDRESS", "The node's address that it listens on.", "--host")]
KeySecret = Annotated[
    str | None, option("NAME", "A secret that requests carry: Authorization: Bearer ….", "--key-secret")
]
Replicas = Annotated[int, option("N", "Processes with the model.", "--replicas", min=1, max=1024)]
MaxBatch = Annotated[int, option("N", "Requests that run() gets together, as a list.", "--max-batch", min=1)]
MaxWait = Annotated[float, option("MS", "How long the first of a batch waits for others.", "--max-wait-ms", min=0)]
TimeLimit = Annotated[float, option("MS", "After which a request is answered with 408.", "--timeout-ms", min=1)]
MaxQueue = Annotated[int, option("N", "Requests that wait in a replica; more get 429.", "--max-queue", min=1)]


def serve(
    target: Target,
    model: WithModel = None,
    port: Port = 5001,
    host: Host = "127.0.0.1",
    key_secret: KeySecret = None,
    replicas: Replicas = 1,
    max_batch: MaxBatch = 1,
    max_wait_ms: MaxWait = 5.0,
    timeout_ms: TimeLimit = 60_000.0,
    max_queue: MaxQueue = 256,
    gpus_per_node: Gpus = None,
    compute: Compute = None,
    environment: Environment = None,
    name: Name = None,
    settings: Keys = None,
    detach: Detach = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Answer requests with a model or a script, until the run is cancelled.

    Scripts are those of Azure ML's inference server: init(), and run() with the request's body. MLflow models and
    TorchScript files need none. Requests go to /score, /v2/models/NAME/infer or /v1/models/NAME:predict.
    A replica that dies is started again behind the same listener. From another machine: `muster forward RUN score`.

    \b
    Examples:
      muster serve score.py --model ./model.pt --port 5001
      muster serve score.py --replicas 2 --max-batch 16 --max-wait-ms 5
    """
    overrides = Overrides(gpus_per_node=gpus_per_node, compute=compute, name=name, environment=environment)
    overrides = replace(overrides, settings=parse_pairs("--set", settings or []))
    given = ServeSettings("", "model", "1", host, port, replicas, max_batch, max_wait_ms, timeout_ms, max_queue)
    serving = _serving(target, model, given, key_secret)
    job = job_of(serving, json.dumps(settings_json(serving.settings)))
    loaded = LoadedJob(make_spec(with_overrides(job, overrides, source="script")), (), Path.cwd())
    if dry_run:
        find("planning.dry_run:show_plan")(loaded, as_json)
        return
    client, view = begin(loaded)
    if detach and not as_json:
        # Followers of the run read it in a notice.
        say(_where(client, view, given))
    raise typer.Exit(follow(client, view, detach=detach, quiet=False, as_json=as_json))


def _where(client: Client, view: RunView, given: ServeSettings) -> str:
    """How to reach a serving run, and how to end it."""
    ending = f"`muster cancel {view.id}` ends it"
    here = view.compute == DEFAULT and client.address.url.startswith(("unix:", "http://127.0.0.1"))
    if here or given.host not in LOOPBACK:
        host = given.host if given.host not in ("0.0.0.0", "::") else "127.0.0.1" if here else "NODE"
        return f"it answers on http://{host}:{given.port}/score once it is up; {ending}"
    return f"`muster forward {view.id} {SERVICE}` reaches it from here; {ending}"


def _serving(target: str, model: str | None, settings: ServeSettings, key_secret: str | None) -> Serving:
    """What is served: a script with or without a model, or a model that needs no script."""
    script = Path(target) if target.endswith(".py") else None
    if script is not None and not script.is_file():
        raise JobError(f"there is no script {target}", "Correct the path.")
    if script is None and model is not None:
        raise JobError(f"{target} is not a script, so --model has no meaning", "Give one model, or a script (.py).")
    named = model if script is not None else target
    found = None if named is None else _model(named, script is None)
    name, version = ("model" if script is None else script.stem, "1") if found is None else (found.name, found.version)
    settings = replace(settings, script="" if script is None else script.name, name=name, version=version)
    return Serving(settings, found, script, key_secret)


def _model(text: str, alone: bool) -> ModelInput:
    """The job's input for a model, with the name and version for its addresses."""
    if not is_address(text) and Path(text).expanduser().exists():
        found = Path(text).expanduser().resolve()
        return replace(ModelInput.at(str(found)), name=found.stem)
    reference = parse(text)
    if isinstance(reference, RunPath):
        return replace(ModelInput.at(text), name=Path(reference.path).stem or "model")
    model = Models(connect().calls).details(str(reference)).model
    kinds = {item.format for item in model.formats}
    if alone and model.type != "mlflow_model" and "TorchScript" not in kinds:
        raise JobError(
            f"{text} is neither an MLflow model nor a TorchScript file ({', '.join(sorted(kinds)) or model.type})",
            f"Serve a script with it: `muster serve score.py --model {model.name}:{model.version}`.",
        )
    return registered_input(model)
