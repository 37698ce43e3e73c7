"""Online endpoints: `muster endpoint …`."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from muster.cli.commands.run import Upload
from muster.cli.console import columns, notice, say
from muster.cli.lazy import find
from muster.cli.options import Json, argument, option, print_json, print_result, switch
from muster.cli.overrides import parse_pairs
from muster.cli.views import endpoints as views
from muster.client.connect import connect, connect_to_read
from muster.client.endpoints.asking import invoke as ask
from muster.client.endpoints.calls import Endpoints, new_endpoint, traffic_changes
from muster.client.endpoints.deploying import deploy as send_deployment
from muster.errors import JobError, NotFound, UserError
from muster.job.endpoints.deployment import read_deployment_file
from muster.job.endpoints.endpoint import EndpointFile, read_endpoint_file
from muster.wire.serving.endpoints import AUTH_MODES, DeploymentView, EndpointKeys, EndpointView

_LOOK_S = 0.2


def complete_endpoints(incomplete: str) -> Iterator[str]:
    """Endpoints of a running server."""
    try:
        found = Endpoints(connect(start=False).calls).list()
    except Exception:
        return
    yield from (view.name for view in found if view.name.startswith(incomplete))


Name = Annotated[str, argument("NAME", "The endpoint's name.", autocompletion=complete_endpoints)]
OfEndpoint = Annotated[str | None, option("NAME", "The endpoint (default: as the file says).", "--endpoint", "-e")]
Deployment = Annotated[str | None, option("NAME", "A deployment of it.", "--deployment", "-d")]
NoWait = Annotated[bool, switch("Return at once, and do not wait until it serves.", "--no-wait")]
Yes = Annotated[bool, switch("Do not ask.", "--yes", "-y")]


def create(
    name: Annotated[str | None, argument("NAME", "The endpoint's name.")] = None,
    file: Annotated[Path | None, option("FILE", "An online endpoint's file (.yml).", "--file", "-f")] = None,
    auth_mode: Annotated[str | None, option("MODE", f"{', '.join(AUTH_MODES)} (default: key).", "--auth-mode")] = None,
    host: Annotated[str | None, option("ADDRESS", "The node's address that its front door listens on.", "--host")] = (
        None
    ),
    port: Annotated[int, option("PORT", "Its port (default: a free one, which it keeps).", "--port", max=65535)] = 0,
    compute: Annotated[
        str | None, option("NAME", "The cluster of its front door (default: that of its first deployment).")
    ] = None,
    tls: Annotated[bool, switch("Answer over https, by an authority of the endpoint's own.", "--tls")] = False,
    cert: Annotated[Path | None, option("FILE", "Answer over https with this certificate (PEM).", "--cert")] = None,
    key: Annotated[Path | None, option("FILE", "The certificate's key (PEM).", "--key")] = None,
    as_json: Json = False,
) -> None:
    """Create an endpoint: an address with keys, to which models are deployed.

    With --tls clients verify it by the certificate that `muster endpoint show NAME --certificate` prints.

    \b
    Examples:
      muster endpoint create digits
      muster endpoint create -f endpoint.yml
      muster endpoint create numbers --host 10.0.0.5 --tls
    """
    endpoint_file = read_endpoint_file(file, name) if file is not None else None
    if endpoint_file is None and name is None:
        raise UserError("the endpoint has no name", "Write `muster endpoint create NAME`, or give -f FILE.")
    endpoint_file = endpoint_file or EndpointFile(name or "")
    if endpoint_file.traffic or endpoint_file.mirror_traffic:
        notice("traffic is set once there are deployments: `muster endpoint traffic`, or deploy with --all-traffic")
    for text in endpoint_file.notices:
        notice(text)
    mode = auth_mode or endpoint_file.auth_mode
    if mode not in AUTH_MODES:
        raise UserError(f"--auth-mode {mode}: there is no such mode", f"Choose one of {', '.join(AUTH_MODES)}.")
    wanted = new_endpoint(
        endpoint_file.name,
        description=endpoint_file.description, tags=endpoint_file.tags, properties=endpoint_file.properties,
        auth_mode=mode, compute=compute or endpoint_file.compute, host=host, port=port,
        tls=tls or cert is not None, certificate=_pem("--cert", cert), private_key=_pem("--key", key),
    )  # fmt: skip
    made = Endpoints(connect().calls).create(wanted)
    if as_json:
        print_json(made)
        return
    say(f"endpoint {made.name} is created; `muster endpoint deploy -f FILE --endpoint {made.name}` deploys to it")


def deploy(
    file: Annotated[Path, option("FILE", "An online deployment's file (.yml).", "--file", "-f")],
    endpoint: OfEndpoint = None,
    name: Annotated[str | None, option("NAME", "The deployment's name (default: as the file says).", "--name")] = None,
    all_traffic: Annotated[bool, switch("Send it all requests from now on.", "--all-traffic")] = False,
    compute: Annotated[str | None, option("NAME", "The cluster of its replicas.")] = None,
    no_wait: NoWait = False,
    as_json: Json = False,
) -> None:
    """Deploy a model to an endpoint, or replace what is deployed there under the same name.

    A new revision takes over once its replicas answer, and the old one ends when it has answered what it has: no
    request is lost. A revision that does not come up leaves the old one in its place.

    \b
    Examples:
      muster endpoint deploy -f blue.yml --all-traffic
      muster endpoint deploy -f blue.yml --endpoint digits --name green
    """
    settings = read_deployment_file(file, endpoint, name)
    if compute is not None:
        settings = replace(settings, compute=compute)
    client, upload = connect(), Upload()
    for text in settings.notices:
        notice(text)
    view = send_deployment(
        client, settings, file.resolve().parent, all_traffic=all_traffic, progress=upload.advance
    )  # fmt: skip
    upload.end()
    deployment = _deployment(view, settings.name)
    if not no_wait:
        view, deployment = _until_served(Endpoints(client.calls), view, deployment, as_json)
    if as_json:
        print_json(view)
    elif no_wait:
        say(views.progress(deployment))
    elif deployment.has_come_up:
        say(_how_to_ask(view, deployment))
    if deployment.has_failed and not no_wait:
        say(f"  `muster logs {deployment.newest_run}` shows what it printed")
        raise typer.Exit(1)


def list_(as_json: Json = False) -> None:
    """List endpoints, with their state, traffic and address.

    \b
    Examples:
      muster endpoint list
    """
    found = Endpoints(connect_to_read().calls).list()
    if not found and not as_json:
        say("no endpoints yet; `muster endpoint create NAME` makes one")
        return
    print_result(found, views.listing(found, time.time(), columns(sys.stdout)), as_json)


def show(
    name: Name,
    certificate: Annotated[
        bool, switch("Print the certificate (PEM) by which clients verify an address of https.", "--certificate")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show an endpoint: its address, its deployments, and how fast they answer.

    \b
    Examples:
      muster endpoint show digits
      muster endpoint show numbers --certificate > numbers.pem
    """
    found = Endpoints(connect_to_read().calls).show(name)
    if certificate and not as_json:
        if found.certificate is None:
            raise NotFound(f"the endpoint {name} has no certificate", "Create it with --tls for one.")
        print(found.certificate, end="")
        return
    print_result(found, views.description(found, time.time(), columns(sys.stdout)), as_json)


def invoke(
    name: Name,
    file: Annotated[Path | None, option("FILE", "The request's body; `-`: standard input.", "--request-file", "-r")] = (
        None
    ),
    data: Annotated[str | None, option("TEXT", "The request's body.", "--data")] = None,
    deployment: Deployment = None,
    as_json: Json = False,
) -> None:
    """Send a request to an endpoint, with its key, and print the answer.

    \b
    Examples:
      muster endpoint invoke digits --data '{"text": "hi"}'
      muster endpoint invoke digits -r request.json --deployment blue
    """
    if (file is None) == (data is None):
        raise UserError("there must be one body", "Give either --request-file FILE or --data TEXT.")
    answer = ask(Endpoints(connect_to_read().calls), name, _body(file, data), deployment)
    if as_json:
        print_json({"status": answer.status, "headers": dict(answer.headers), "body": answer.text})
    else:
        print(answer.text)
    if answer.status >= 400:
        if not as_json:
            reason = answer.headers.get("ms-azureml-model-error-statuscode")
            notice(f"the answer is {answer.status}" + (f" (the model answered {reason})" if reason else ""))
        raise typer.Exit(1)


def logs(
    name: Name,
    deployment: Deployment = None,
    lines: Annotated[int, option("N", "The last N lines.", "--lines", "-n", min=0)] = 5000,
    follow: Annotated[bool, switch("Follow until its run ends.", "--follow", "-f")] = False,
    as_json: Json = False,
) -> None:
    """Print the output of a deployment's replicas, or of the front door.

    \b
    Examples:
      muster endpoint logs digits --deployment blue
    """
    view = Endpoints(connect_to_read().calls).show(name)
    shown = [view.run] if deployment is None else list(_deployment(view, deployment).runs)
    runs = [run for run in shown if run is not None]
    if not runs:
        raise NotFound(f"nothing of {deployment or name} has run yet", f"`muster endpoint show {name}` shows it.")
    if follow and len(runs) > 1:
        raise UserError(
            f"{deployment} runs on {len(runs)} nodes, each with its own run: {', '.join(runs)}",
            f"Follow one of them: `muster logs {runs[0]} --follow`.",
        )
    for run in runs:
        if len(runs) > 1:
            notice(f"log of {run}:")
        find("commands.logs:logs")(run, tail=lines, follow=follow, as_json=as_json)


def traffic(
    name: Name,
    shares: Annotated[list[str] | None, argument("DEPLOYMENT=PERCENT", "Shares that add up to 100.")] = None,
    mirror: Annotated[
        list[str] | None, option("DEPLOYMENT=PERCENT", "Copies of this share of requests; its answers are dropped.")
    ] = None,
    canary: Annotated[
        str | None,
        option("DEPLOYMENT", "Watch it, and take its share back if it does worse than the others.", "--canary"),
    ] = None,
    max_errors: Annotated[
        float, option("PERCENT", "How much more often its requests may fail.", "--max-errors", min=0, max=100)
    ] = 2.0,
    max_slower: Annotated[
        float, option("TIMES", "How many times the others' p95 its own may be.", "--max-slower", min=1)
    ] = 2.0,
    as_json: Json = False,
) -> None:
    """Split an endpoint's requests between its deployments, or mirror them to one.

    Deployments that are not named get no traffic. A request that names one with the header azureml-model-deployment
    goes there, whatever its share. With --canary the workspace's server compares errors and times of the deployment
    with those of the others, and gives the traffic back to them by itself.

    \b
    Examples:
      muster endpoint traffic digits blue=90 green=10 --canary green
      muster endpoint traffic digits blue=90 green=10
      muster endpoint traffic digits blue=100
      muster endpoint traffic digits --mirror green=10
    """
    if not shares and mirror is None:
        raise UserError("there is nothing to change", "Write blue=90 green=10, or --mirror green=10.")
    changes = traffic_changes(
        _percents("DEPLOYMENT=PERCENT", shares) if shares else None,
        None if mirror is None else _percents("--mirror", mirror),
        canary,
        max_errors,
        max_slower,
    )
    made = Endpoints(connect().calls).change(name, changes)
    if as_json:
        print_json(made)
        return
    given = ", ".join(f"{key} {value} %" for key, value in made.traffic.items()) or "no deployment gets requests"
    copied = "".join(f"; {key} gets copies of {value} %" for key, value in made.mirror_traffic.items())
    watched = f"; {canary} is watched: `muster endpoint show {name}` says how it does" if canary else ""
    say(f"{name}: {given}{copied}{watched}")


def keys(
    name: Name,
    renew: Annotated[str | None, option("primary|secondary", "Regenerate this key first.", "--regenerate")] = None,
    as_json: Json = False,
) -> None:
    """Show the credentials of an endpoint: its two keys, or a token for an hour.

    To rotate: have clients use the secondary key, regenerate the primary one, have them use that, then regenerate
    the other. Where the endpoint uses tokens, --regenerate ends all that were handed out.

    \b
    Examples:
      muster endpoint keys digits
      muster endpoint keys digits --regenerate primary
    """
    endpoints = Endpoints(connect().calls)
    if renew is not None and renew not in ("primary", "secondary"):
        raise UserError(f"--regenerate {renew}: there is no such key", "Give primary or secondary.")
    found = endpoints.keys(name) if renew is None else endpoints.renew_key(
        name, "primary" if renew == "primary" else "secondary"
    )  # fmt: skip
    print_result(found, _key_lines(found), as_json)


def undeploy(
    name: Name,
    deployment: Annotated[str, argument("DEPLOYMENT", "One that has no traffic.")],
    as_json: Json = False,
) -> None:
    """Remove a deployment that has no traffic.

    \b
    Examples:
      muster endpoint undeploy digits green
    """
    Endpoints(connect().calls).delete_deployment(name, deployment)
    if as_json:
        print_json({"deleted": deployment, "endpoint": name})
        return
    say(f"{deployment} of {name} ends")


def delete(name: Name, yes: Yes = False, as_json: Json = False) -> None:
    """Delete an endpoint with all its deployments; their runs and logs stay.

    \b
    Examples:
      muster endpoint delete digits --yes
    """
    endpoints = Endpoints(connect().calls)
    view = endpoints.show(name)
    if not yes and not typer.confirm(f"Delete {name} with {len(view.deployments)} deployments?"):
        raise typer.Exit(1)
    endpoints.delete(name)
    if as_json:
        print_json({"deleted": name})
        return
    say(f"{name} is deleted")


def _deployment(view: EndpointView, name: str) -> DeploymentView:
    for item in view.deployments:
        if item.name == name:
            return item
    known = ", ".join(item.name for item in view.deployments) or "none"
    raise NotFound(f"the endpoint {view.name} has no deployment {name!r}", f"It has: {known}.")


def _until_served(
    endpoints: Endpoints, view: EndpointView, deployment: DeploymentView, quiet: bool
) -> tuple[EndpointView, DeploymentView]:
    """Wait until a deployment serves at an endpoint that answers, or has failed; prints changes."""
    shown = ""
    while True:
        text = views.progress(deployment)
        if text != shown and not quiet and not deployment.has_come_up:
            say(text)
            shown = text
        if deployment.has_failed or (deployment.has_come_up and view.state != "starting"):
            return view, deployment
        time.sleep(_LOOK_S)
        view = endpoints.show(view.name)
        deployment = _deployment(view, deployment.name)


def _how_to_ask(view: EndpointView, deployment: DeploymentView) -> str:
    if deployment.traffic:
        share, ask_it = f"{deployment.traffic} % of the traffic", f"`muster endpoint invoke {view.name}` asks it"
    else:
        share, ask_it = "no traffic yet", f"`muster endpoint invoke {view.name} -d {deployment.name}` asks it"
        ask_it += f", `muster endpoint traffic {view.name} {deployment.name}=100` gives it all requests"
    return f"{deployment.name} serves at {view.scoring_uri} ({share}); {ask_it}"


def _body(file: Path | None, data: str | None) -> bytes:
    if data is not None:
        return data.encode()
    if str(file) == "-":
        return sys.stdin.buffer.read()
    assert file is not None
    try:
        return file.read_bytes()
    except OSError as error:
        raise JobError(f"{file} cannot be read: {error.strerror}", "Correct --request-file.") from error


def _pem(name: str, file: Path | None) -> str | None:
    try:
        return None if file is None else file.read_text()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(f"{name} {file} cannot be read: {why}", "Give a PEM file.") from error


def _percents(what: str, given: list[str]) -> Mapping[str, int]:
    found = {}
    # "blue=90 green=10" as one argument, as Azure ML's own command accepts it.
    parts = [part for text in given for part in text.split()]
    twice = [name for name, count in Counter(part.partition("=")[0] for part in parts).items() if count > 1]
    if twice:
        raise UserError(f"{what}: {twice[0]} is there twice", "Give each deployment one share.")
    for name, text in parse_pairs(what, parts).items():
        if not text.removesuffix("%").strip().isdecimal():
            raise UserError(f"{name}={text}: that is not a percentage", "Write a whole number, such as blue=90.")
        found[name] = int(text.removesuffix("%"))
    return found


def _key_lines(found: EndpointKeys) -> list[str]:
    if found.token is not None:
        left = (found.expires_at or 0) - time.time()
        return [f"token      {found.token}", f"expires    in {left / 60:.0f} minutes"]
    return [f"primary    {found.primary}", f"secondary  {found.secondary}"]


COMMANDS = (create, deploy, list_, show, invoke, logs, traffic, keys, undeploy, delete)
