"""The workspace and its server: `init`, `up`, `down`, `status`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from muster import defaults
from muster.cli.console import Paint, columns, notice, say
from muster.cli.options import Json, argument, option, print_result, switch
from muster.cli.templates import TEMPLATES, lacks_mpirun, missing, refuse_to_overwrite
from muster.cli.templates import write as write_template
from muster.cli.text import counted, table
from muster.cli.views.listing import listing
from muster.client.connect import announced, announced_url, connect, living_agents
from muster.client.server_process import wait_until_gone
from muster.client.workspace import (
    WorkspaceRef,
    create_workspace,
    find_folder,
    find_workspace,
    is_home,
    locate,
    trust_workspace,
)
from muster.errors import Conflict, NotFound, ServerUnavailable, UserError
from muster.host.extras import install_command
from muster.host.http import is_loopback
from muster.paths import WorkspacePaths
from muster.wire import states
from muster.wire.clusters import ClusterView
from muster.wire.codec import OMIT
from muster.wire.message import wire
from muster.wire.runs import RunView
from muster.wire.text import printable
from muster.wire.workspace import Health

_MOST_QUEUED = 20


@dataclass(frozen=True)
class WorkspaceBrief:
    """A workspace by name and folder."""

    name: str
    root: str
    server: str | None
    """The address of the team's server."""


@wire
class ServerStatus(Health):
    """A server that answers."""

    url: str = ""
    others: str | None = field(default=None, metadata=OMIT)
    """The address by which other machines reach it."""


@dataclass(frozen=True)
class WorkspaceStatus:
    """The JSON of `muster status`."""

    workspace: WorkspaceBrief
    server: ServerStatus | None = None
    why: str = field(default="", metadata=OMIT)
    """Why no server answers."""
    clusters: tuple[ClusterView, ...] = ()
    runs: tuple[RunView, ...] = ()
    """The active runs, and the newest queued ones."""
    more_queued: int = 0
    """How many more are queued."""
    agents: tuple[str, ...] = field(default=(), metadata=OMIT)
    """Nodes whose agents are running without a server."""


def init(
    path: Annotated[Path, argument("PATH", "The folder (default: the current one).")] = Path(),
    name: Annotated[str | None, option("NAME", "The workspace's name (default: the folder's).")] = None,
    template: Annotated[
        str | None,
        option(
            "|".join(TEMPLATES),
            "Write a script and a job file that run at once.",
            show_default=False,
            autocompletion=lambda incomplete: [name for name in TEMPLATES if name.startswith(incomplete)],
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a folder a workspace, which keeps runs in its .muster folder.

    Without one, runs are kept in the workspace of your home folder. With --template it also gets `train.py` and
    `job.yml`: a small training with synthetic data, to put your own in its place. Existing files are not
    overwritten, and a folder in a workspace stays part of it.

    \b
    Examples:
      muster init
      muster init ./project --name vision
      muster init ./first --template ddp
    """
    if template is not None:
        refuse_to_overwrite(path, template)
    if template is None or name is not None or find_folder(path) is None:
        ref = create_workspace(path, name)
        print_result(_brief(ref), [f"workspace {ref.name} in {ref.root}"], as_json)
    if template is not None:
        _write_template(path, template)


def _write_template(folder: Path, name: str) -> None:
    script, job = write_template(folder, name)
    say(f"{script} and {job}: {TEMPLATES[name].about}\nrun it with `muster run {job}`")
    if wanted := list(missing(name)):
        notice(f"this Python lacks {', '.join(wanted)}: pip install {' '.join(wanted)}")
    if lacks_mpirun(name):
        notice(f"there is no mpirun: {install_command('mpi')}, or the system's openmpi-bin")


def trust(
    path: Annotated[Path, argument("PATH", "The folder (default: the current one).")] = Path(),
    as_json: Json = False,
) -> None:
    """Trust a workspace that somebody else made.

    Until then, one that came with a clone or an archive is not used: its workspace.json may name programs that the
    server runs, and a server that tokens are sent to. Those that you made with `muster init` on this machine are
    trusted already.

    \b
    Examples:
      muster trust
      muster trust ./project
    """
    ref = trust_workspace(path)
    print_result(_brief(ref), [f"the workspace {printable(ref.name)} in {ref.root} is trusted"], as_json)


def up(
    host: Annotated[str, option("HOST", "Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, option("PORT", "Port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = defaults.SERVER_PORT,
    tls: Annotated[bool, switch("TLS with a certificate made by Muster.", "--tls")] = False,
    cert: Annotated[Path | None, option("FILE", "TLS certificate (PEM); with --key.")] = None,
    key: Annotated[Path | None, option("FILE", "Its private key (PEM).")] = None,
    otlp: Annotated[
        str | None, option("URL", "Export logs, metrics and traces of runs to this OpenTelemetry collector (OTLP).")
    ] = None,
    print_token: Annotated[bool, switch("Print the token that clients need, and exit.", "--print-token")] = False,
) -> None:
    """Serve this workspace to a team, in the foreground.

    You do not need it for yourself: a small server starts by itself and stops when idle. Other machines are served
    with TLS only. It prints the line with which others connect (`muster login URL --fingerprint …`); Ctrl-C ends it,
    and active runs go on.

    \b
    Examples:
      muster up
      muster up --host 0.0.0.0 --tls
      muster up --host 10.0.0.5 --cert server.pem --key server.key
    """
    ref = find_workspace()
    if print_token:
        print(_token(ref.paths.admin_token))
        return
    if ref.server is not None:
        raise Conflict(f"this workspace belongs to the server at {ref.server.url}.", "It is served there already.")
    _make_way(ref)
    arguments = server_command(ref.root, host, port, tls=tls, cert=cert, key=key)
    arguments += ["--otlp", otlp] if otlp else []
    sys.stdout.flush()
    os.execv(arguments[0], arguments)


def _make_way(ref: WorkspaceRef) -> None:
    """End the workspace's embedded server, which would hold the workspace; not one that serves others."""
    try:
        client = connect(ref, start=False)
    except ServerUnavailable:
        return
    served = announced(ref.paths)
    if served is not None and served.url:
        raise Conflict(
            f"this workspace is served already at {served.url} (process {served.pid}).",
            "`muster down` ends that server.",
        )
    client.shutdown(force=True)
    wait_until_gone(ref.paths)


def server_command(root: Path, host: str, port: int, *, tls: bool, cert: Path | None, key: Path | None) -> list[str]:
    """The server's command line; refuses to serve beyond this machine without TLS."""
    if (cert is None) != (key is None):
        raise UserError("--cert and --key belong together; only one was given.")
    if tls and cert is not None:
        raise UserError("--tls makes a certificate, and --cert uses yours.", "Give only one of them.")
    for path in (cert, key):
        if path is not None and not path.is_file():
            raise NotFound(f"there is no file {path}.")
    if not tls and cert is None and not is_loopback(host):
        raise UserError(
            f"--host {host} would serve beyond this machine without encryption.",
            "Add --tls for a certificate that Muster makes, or --cert and --key.",
        )
    secured = ["--tls-self-signed"] if tls else []
    if cert is not None and key is not None:
        secured = ["--tls-cert", str(cert.absolute()), "--tls-key", str(key.absolute())]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return [sys.executable, "-m", "muster.server", "--workspace", str(root), "--tcp", address, *secured, "--foreground"]


def down(
    force: Annotated[bool, switch("Even while runs are active; they go on.", "--force")] = False, as_json: Json = False
) -> None:
    """Stop this workspace's server. Active runs go on.

    \b
    Examples:
      muster down
      muster down --force
    """
    ref = find_workspace()
    try:
        client = connect(ref, start=False)
    except ServerUnavailable:
        if ref.server is not None or not (left := living_agents(ref.paths)):
            print_result({"stopped": False}, ["no server is running"], as_json)
            return
        # Only a server can end agents; a killed one has left them behind.
        say(f"no server is running, but {listed_agents(left)}; a server starts and ends the idle ones")
        client = connect(ref)
    client.shutdown(force)
    if ref.server is None:
        wait_until_gone(ref.paths)
    line = "the server has stopped" if ref.server is None else f"the server at {ref.server.url} is stopping"
    print_result({"stopped": True}, [line], as_json)


def status(as_json: Json = False) -> None:
    """Show this workspace, its server, nodes and active runs. Starts nothing.

    \b
    Examples:
      muster status
      muster status --json
    """
    root = locate()
    # Status must not create anything.
    is_none = is_home(root) and not WorkspacePaths(root).config.exists() and not os.environ.get("MUSTER_SERVER")
    found = _workspace_status(WorkspaceRef(root, "", "home") if is_none else find_workspace())
    if is_none:
        say(
            f"There is no workspace in or above {Path.cwd()}: runs are kept in your home folder "
            "unless `muster init` makes one."
        )
    print_result(found, status_lines(found, Paint.of(sys.stdout), columns(sys.stdout)), as_json)


def _brief(ref: WorkspaceRef) -> WorkspaceBrief:
    return WorkspaceBrief(ref.name, str(ref.root), ref.server.url if ref.server else None)


def _workspace_status(ref: WorkspaceRef) -> WorkspaceStatus:
    workspace = _brief(ref)
    try:
        client = connect(ref, start=False)
        health = client.health()
    except ServerUnavailable as error:
        agents = () if ref.server else tuple(living_agents(ref.paths))
        return WorkspaceStatus(workspace, why=error.message, agents=agents)
    server = ServerStatus(**vars(health), url=client.address.url, others=_others(ref))
    active = client.runs(status=sorted(states.ACTIVE | {states.NOT_STARTED}))
    queued = client.runs(_MOST_QUEUED, status=states.QUEUED)
    more = max(0, health.active_runs - len(active) - len(queued))
    return WorkspaceStatus(workspace, server, "", tuple(client.clusters()), (*active, *queued), more)


def _others(ref: WorkspaceRef) -> str | None:
    url = None if ref.server else announced_url(ref.paths)
    return url if url and not is_loopback(urlsplit(url).hostname or "") else None


def status_lines(found: WorkspaceStatus, paint: Paint, room: int | None = None) -> list[str]:
    workspace, server = found.workspace, found.server
    lines = [f"{paint('workspace', 'dim')}  {workspace.name}  {workspace.root}"]
    if server is None:
        embedded = workspace.server is None
        text = "not running; the next command starts it" if embedded else found.why
        lines.append(f"{paint('server', 'dim')}     {text}")
        if found.agents:
            lines.append(
                f"{paint('agents', 'dim')}     {listed_agents(found.agents)}; `muster down` ends those without work"
            )
        return lines
    lines.append(f"{paint('server', 'dim')}     {server.url}  {server.version}  process {server.pid}")
    if server.others:
        lines.append(f"{paint('others', 'dim')}     {server.others}  `muster login` there")
    if server.trouble:
        lines.append(f"{paint('trouble', 'red')}    {server.trouble}")
    for cluster in found.clusters:
        lines.append(
            f"{paint('cluster', 'dim')}    {cluster.name}  {cluster.engine}  {counted(len(cluster.nodes), 'node')}"
        )
        rows = [(node.name, node.state, node.reason) for node in cluster.nodes]
        lines += [f"           {line}" for line in table(("NODE", "STATE", "WHY"), rows)] if rows else []
    if not found.runs:
        return [*lines, f"{paint('runs', 'dim')}       none active"]
    more = [f"… and {found.more_queued:,} more that wait: muster ps --status Queued --all"] if found.more_queued else []
    return [*lines, "", *listing(found.runs, paint, time.time(), room), *more]


def listed_agents(nodes: Sequence[str]) -> str:
    many = len(nodes) > 1
    return f"the agent{'s' if many else ''} of {', '.join(nodes)} {'are' if many else 'is'} still there"


def _token(path: Path) -> str:
    if not path.is_file():
        raise NotFound("this workspace has no token yet.", "The server writes it when it first starts: `muster up`.")
    return path.read_text().strip()
