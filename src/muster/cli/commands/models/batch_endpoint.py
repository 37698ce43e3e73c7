"""Batch endpoints: `muster batch-endpoint …`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from muster.cli.commands.models.score import fetch_results
from muster.cli.commands.run import Upload, follow, tell
from muster.cli.console import columns, notice, say
from muster.cli.interrupts import submitted
from muster.cli.lazy import find
from muster.cli.options import Json, argument, option, print_json, print_result, seconds_of, switch
from muster.cli.overrides import parse_pairs
from muster.cli.views import batch_endpoints as views
from muster.client.connect import connect, connect_to_read
from muster.client.endpoints.batch import BatchEndpoints, named, new_batch_endpoint, new_request
from muster.client.endpoints.batch import deploy as send_deployment
from muster.client.scoring import data_input
from muster.errors import UserError
from muster.job.endpoints.batch_deployment import read_batch_deployment
from muster.job.endpoints.batch_endpoint import BatchEndpointFile, read_batch_endpoint_file
from muster.job.endpoints.batch_job import RESULT
from muster.job.rules import is_address
from muster.wire.serving.batch import ENDPOINT_TAG, BatchEndpointChanges


def complete_batch_endpoints(incomplete: str) -> Iterator[str]:
    """Batch endpoints of a running server."""
    try:
        found = BatchEndpoints(connect(start=False).calls).list()
    except Exception:
        return
    yield from (view.name for view in found if view.name.startswith(incomplete))


Name = Annotated[str, argument("NAME", "The batch endpoint's name.", autocompletion=complete_batch_endpoints)]
OfEndpoint = Annotated[str | None, option("NAME", "The endpoint (default: as the file says).", "--endpoint", "-e")]
Yes = Annotated[bool, switch("Do not ask.", "--yes", "-y")]
Data = Annotated[str, option("DATA", "A file or folder, azureml:ASSET:VERSION, or an address.", "--input", "-i")]
Deployment = Annotated[str | None, option("NAME", "One of its deployments.", "--deployment", "-d")]
Output = Annotated[
    str | None,
    option("DATA", "A folder here, or an address in a datastore (default: kept with the run).", "--output", "-o"),
]
OutputFile = Annotated[str | None, option("NAME", "The file of append_row.", "--output-file")]
BatchSize = Annotated[int | None, option("N", "Files, or rows, in a mini-batch.", "--mini-batch-size", "-m", min=1)]
Nodes = Annotated[int | None, option("N", "Number of nodes.", "--nodes", "--instance-count", "-c", min=1)]
Procs = Annotated[int | None, option("P", "Processes with a model on each node.", min=1)]
Retries = Annotated[int | None, option("N", "Further tries of a mini-batch that failed.", "--retries", min=0)]
BatchTimeout = Annotated[str | None, option("TIME", "For one mini-batch: 90, 15m.", "--batch-timeout")]
Threshold = Annotated[int | None, option("N", "Items that may fail; -1: any number.", "--error-threshold", min=-1)]
Compute = Annotated[str | None, option("NAME", "The cluster to run on.")]
RunName = Annotated[str | None, option("NAME", "A name for the run.", "--name", "--job-name")]
Experiment = Annotated[str | None, option("NAME", "The run's experiment (default: the endpoint's name).")]
Tags = Annotated[list[str] | None, option("NAME=VALUE", "A tag of the run; repeatable.", "--tag")]
Detach = Annotated[bool, switch("Print the run's id and return at once.", "--detach")]


def create(
    name: Annotated[str | None, argument("NAME", "The batch endpoint's name.")] = None,
    file: Annotated[Path | None, option("FILE", "A batch endpoint's file (.yml).", "--file", "-f")] = None,
    as_json: Json = False,
) -> None:
    """Create a batch endpoint: a name under which models are deployed to score data on request.

    \b
    Examples:
      muster batch-endpoint create nightly
      muster batch-endpoint create -f batch-endpoint.yml
    """
    if file is None and name is None:
        raise UserError("the endpoint has no name", "Write `muster batch-endpoint create NAME`, or give -f FILE.")
    endpoint_file = read_batch_endpoint_file(file, name) if file is not None else BatchEndpointFile(name or "")
    if endpoint_file.default_deployment is not None:
        notice("defaults.deployment_name has no effect yet: the first deployment becomes the default")
    wanted = new_batch_endpoint(
        endpoint_file.name,
        description=endpoint_file.description,
        tags=endpoint_file.tags,
        properties=endpoint_file.properties,
    )
    made = BatchEndpoints(connect().calls).create(wanted)
    if as_json:
        print_json(made)
        return
    say(f"{made.name} is there; `muster batch-endpoint deploy -f FILE --endpoint {made.name}` deploys to it")


def deploy(
    file: Annotated[Path, option("FILE", "A batch deployment's file (.yml).", "--file", "-f")],
    endpoint: OfEndpoint = None,
    name: Annotated[str | None, option("NAME", "The deployment's name (default: as the file says).", "--name")] = None,
    set_default: Annotated[bool, switch("Requests that name no deployment go to it.", "--set-default")] = False,
    compute: Annotated[str | None, option("NAME", "The cluster of its runs.")] = None,
    as_json: Json = False,
) -> None:
    """Deploy a model to a batch endpoint, or replace what is deployed there under the same name.

    Nothing runs until data is to be scored. The code is sent now and the version of the model is fixed now; runs that
    were started before keep what they had. The first deployment of an endpoint is its default.

    \b
    Examples:
      muster batch-endpoint deploy -f deployment.yml
      muster batch-endpoint deploy -f deployment.yml --name second --set-default
    """
    settings = named(read_batch_deployment(file), endpoint, name, compute)
    client, upload = connect(), Upload()
    view = send_deployment(client, settings, file.resolve().parent, set_default=set_default, progress=upload.advance)
    upload.end()
    if as_json:
        print_json(view)
        return
    chosen = " (default)" if view.default_deployment == settings.name else ""
    say(f"{settings.name}{chosen} is deployed; `muster batch-endpoint invoke {view.name} --input DATA` scores with it")


def list_(as_json: Json = False) -> None:
    """List batch endpoints, with their default deployment and its model.

    \b
    Examples:
      muster batch-endpoint list
    """
    found = BatchEndpoints(connect_to_read().calls).list()
    if not found and not as_json:
        say("no batch endpoints yet; `muster batch-endpoint create NAME` makes one")
        return
    print_result(found, views.listing(found, time.time(), columns(sys.stdout)), as_json)


def show(name: Name, as_json: Json = False) -> None:
    """Show a batch endpoint with its deployments.

    \b
    Examples:
      muster batch-endpoint show nightly
    """
    found = BatchEndpoints(connect_to_read().calls).show(name)
    print_result(found, views.description(found, time.time(), columns(sys.stdout)), as_json)


def invoke(
    name: Name,
    data: Data,
    deployment: Deployment = None,
    output: Output = None,
    output_file: OutputFile = None,
    batch: BatchSize = None,
    nodes: Nodes = None,
    procs: Procs = None,
    retries: Retries = None,
    timeout: BatchTimeout = None,
    errors: Threshold = None,
    compute: Compute = None,
    run_name: RunName = None,
    experiment: Experiment = None,
    tags: Tags = None,
    detach: Detach = False,
    as_json: Json = False,
) -> None:
    """Score data with a deployment, as a run.

    Without an option, the deployment's own setting applies. Each input is in the result once; `muster score` has the
    rules.

    \b
    Examples:
      muster batch-endpoint invoke nightly --input ./images --output ./predictions
      muster batch-endpoint invoke nightly --input azureml:digits:1 --mini-batch-size 20 --detach
    """
    client = connect()
    path, kind = data_input(client, data)
    local = output is not None and not is_address(output)
    request = new_request(
        path, data_type=kind, deployment=deployment, output=None if local else output, output_file=output_file,
        mini_batch_size=batch, error_threshold=errors, max_retries=retries,
        timeout_s=None if timeout is None else float(seconds_of("--batch-timeout", timeout)),
        nodes=nodes, procs=procs, compute=compute, display_name=run_name, experiment=experiment,
        tags=parse_pairs("--tag", tags or []),
    )  # fmt: skip
    if local and detach:
        notice(f"--output {output} is a folder here: `muster download RUN outputs/{RESULT}` fetches the results later")
    view = submitted(client, lambda: BatchEndpoints(client.calls).invoke(name, request), tell)
    code = follow(client, view, detach=detach, quiet=False, as_json=as_json)
    if code == 0 and local and not detach:
        fetch_results(client, view.id, Path(output or "."))
    raise typer.Exit(code)


def runs(
    name: Name,
    most: Annotated[int, option("N", "The newest N.", "--limit", "-n", min=1)] = 20,
    as_json: Json = False,
) -> None:
    """List the runs that a batch endpoint made, newest first.

    \b
    Examples:
      muster batch-endpoint runs nightly
    """
    BatchEndpoints(connect_to_read().calls).show(name)
    find("commands.records.listing:ps")(tag=[f"{ENDPOINT_TAG}={name}"], limit=most, as_json=as_json)


def update(
    name: Name,
    default: Annotated[
        str | None, option("DEPLOYMENT", "Where requests go that name no deployment.", "--default")
    ] = None,
    description: Annotated[str | None, option("TEXT", "A description.", "--description")] = None,
    tags: Annotated[list[str] | None, option("NAME=VALUE", "A tag; repeatable.", "--tag")] = None,
    as_json: Json = False,
) -> None:
    """Change a batch endpoint: its default deployment, its description, its tags.

    \b
    Examples:
      muster batch-endpoint update nightly --default first
    """
    if default is None and description is None and not tags:
        raise UserError("there is nothing to change", "Give --default DEPLOYMENT, --description or --tag.")
    changes = BatchEndpointChanges(description, dict(parse_pairs("--tag", tags or [])) or None, default)
    made = BatchEndpoints(connect().calls).change(name, changes)
    if as_json:
        print_json(made)
        return
    say(f"{made.name}: requests go to {made.default_deployment or 'no deployment yet'}")


def undeploy(
    name: Name,
    deployment: Annotated[str, argument("DEPLOYMENT", "One that is not the default, or the last one.")],
    as_json: Json = False,
) -> None:
    """Remove a deployment; its runs stay.

    \b
    Examples:
      muster batch-endpoint undeploy nightly second
    """
    BatchEndpoints(connect().calls).delete_deployment(name, deployment)
    if as_json:
        print_json({"deleted": deployment, "endpoint": name})
        return
    say(f"{deployment} of {name} is removed")


def delete(name: Name, yes: Yes = False, as_json: Json = False) -> None:
    """Delete a batch endpoint with its deployments; their runs stay.

    \b
    Examples:
      muster batch-endpoint delete nightly --yes
    """
    endpoints = BatchEndpoints(connect().calls)
    view = endpoints.show(name)
    if not yes and not typer.confirm(f"Delete {name} with {len(view.deployments)} deployments?"):
        raise typer.Exit(1)
    endpoints.delete(name)
    if as_json:
        print_json({"deleted": name})
        return
    say(f"{name} is deleted")


COMMANDS = (create, deploy, list_, show, invoke, runs, update, undeploy, delete)
