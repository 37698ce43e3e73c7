"""Clusters: `muster cluster …`, and what they cost: `muster cost`."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from muster.cli.checking.walk import check_cluster
from muster.cli.console import Paint, columns, notice, say
from muster.cli.exits import EXIT_FAILED
from muster.cli.options import Json, argument, option, print_json, print_result, seconds_of, switch
from muster.cli.overrides import parse_pairs
from muster.cli.views.cluster import cluster_lines, cost_lines, history_lines, listing, node_lines, summary
from muster.cli.views.findings import finding_lines
from muster.client.connect import connect, connect_to_read
from muster.clusters.file import ClusterFile, load_cluster_file
from muster.clusters.options import Flag
from muster.defaults import IDLE_SCALEDOWN_S
from muster.engines.flags import FLAGS
from muster.errors import Conflict, UserError
from muster.wire.clusters import ChangedCluster, ClusterView, CostBy
from muster.wire.codec import Json as Value

Name = Annotated[str, argument("NAME", "The cluster's name.")]
Nodes = Annotated[list[str], argument("NODE", "Nodes of the cluster.")]
_COST_LINES = 20


def create(
    name: Annotated[str | None, argument("NAME", "The cluster's name (default: the one in the file).")] = None,
    file: Annotated[Path | None, option("FILE", "A cluster file, or one of Azure ML.", "--file", "-f")] = None,
    min_nodes: Annotated[int | None, option("N", "Nodes that always stay (default: 0).", min=0)] = None,
    max_nodes: Annotated[int | None, option("N", "The most nodes it may have.", min=1)] = None,
    idle: Annotated[
        float | None, option("SECONDS", f"How long an idle node stays (default: {IDLE_SCALEDOWN_S:g}).", min=0)
    ] = None,
    size: Annotated[str | None, option("SIZE", "A machine size, such as Standard_NC6s_v3.")] = None,
    cpus: Annotated[int | None, option("N", "CPUs of each node (default: shared).", min=1)] = None,
    gpus: Annotated[int | None, option("N", "GPUs of each node (default: shared).", min=0)] = None,
    setup: Annotated[str | None, option("COMMAND", "Run on each node before its first job.")] = None,
    engine: Annotated[str | None, option("ENGINE", "Where nodes come from: local, ray, slurm or slurm-pool.")] = None,
    option: Annotated[list[str] | None, option("KEY=VALUE", "Any other setting of the engine; repeatable.")] = None,
    as_json: Json = False,
    **flags: Value,
) -> None:
    """Create a cluster, whose nodes are added for jobs and removed when idle.

    On this machine its nodes are simulated. docs/clusters.md describes cluster files; docs/slurm.md and docs/ray.md
    describe those engines.

    \b
    Examples:
      muster cluster create small --min-nodes 1 --max-nodes 2
      muster cluster create --file cluster.yml
    """
    wanted = load_cluster_file(file) if file is not None else ClusterFile(None, "local", {})
    chosen = name or wanted.name
    if chosen is None:
        raise UserError("the cluster has no name.", "Give one: `muster cluster create NAME`, or `name:` in the file.")
    given: dict[str, Value] = {
        "min_nodes": min_nodes,
        "max_nodes": max_nodes,
        "idle_seconds_before_scaledown": idle,
        "vm_size": size,
        "cpus": cpus,
        "gpus": gpus,
        "setup": setup,
        **flags,
        **{key: yaml.safe_load(value) for key, value in parse_pairs("--option", option or []).items()},
    }
    options = wanted.options | {key: value for key, value in given.items() if value is not None}
    made = connect().create_cluster(chosen, engine or wanted.engine, options)
    for text in (*wanted.notices, *made.notices):
        notice(text)
    _show(made, as_json)


def with_flags(function: Callable[..., None], flags: Mapping[str, Sequence[Flag]]) -> Callable[..., None]:
    """The command with the options of every engine added, which it gets as keywords."""
    signature = inspect.signature(function, eval_str=True)
    *known, option, as_json, _ = signature.parameters.values()
    added = [_parameter(engine, flag) for engine, of_engine in flags.items() for flag in of_engine]
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [item.replace(kind=keyword) for item in (*known, *added, option, as_json)]

    @wraps(function)
    def command(**given: Any) -> None:
        function(**given)

    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def _parameter(engine: str, flag: Flag) -> inspect.Parameter:
    kinds = {"text": str | None, "texts": list[str] | None, "switch": bool | None}
    option = typer.Option(
        None,
        f"--{flag.setting.replace('_', '-')}",
        help=f"{engine.title()}: {flag.help}",
        metavar=flag.metavar or None,
        show_default=False,
    )
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(flag.setting, keyword, default=option, annotation=kinds[flag.kind])


def list_(as_json: Json = False) -> None:
    """List the clusters of this workspace.

    \b
    Examples:
      muster cluster list
      muster cluster list --json
    """
    found = connect_to_read().clusters()
    print_result(found, listing(found), as_json)


def show(name: Name, as_json: Json = False) -> None:
    """Show one cluster and its nodes.

    \b
    Examples:
      muster cluster show small
    """
    client = connect_to_read()
    view, use = client.cluster(name), client.cluster_use(name, points=1)
    print_result(view, cluster_lines(view, Paint.of(sys.stdout), time.time(), use), as_json)


def check(
    name: Name,
    wait: Annotated[str, option("TIME", "How long the small job may wait in the queue: 90, 15m.")] = "10m",
    no_job: Annotated[bool, switch("Skip the small job.", "--no-job")] = False,
    as_json: Json = False,
) -> None:
    """Test a cluster before its first job.

    The server asks the cluster's manager (reach, credentials, versions, settings, nodes) and checks the connection
    back to it and its disk. Then a job of a few seconds on two nodes adds numbers up over the network, and reports each
    node's Python, folders, disk and clock. The exit code is 1 if something would keep jobs from running.

    \b
    Examples:
      muster cluster check local
      muster cluster check gpus --wait 1h
    """
    findings = check_cluster(name, None if no_job else seconds_of("--wait", wait))
    print_result(findings, finding_lines(findings, Paint.of(sys.stdout), columns(sys.stdout)), as_json)
    if any(finding.level == "fail" for finding in findings):
        raise typer.Exit(EXIT_FAILED)


def nodes(
    name: Name,
    history: Annotated[str | None, option("NODE", "The past states of this node.")] = None,
    setup_log: Annotated[str | None, option("NODE", "The output of this node's set-up.")] = None,
    as_json: Json = False,
) -> None:
    """List a cluster's nodes with their states, and why.

    \b
    Examples:
      muster cluster nodes small
      muster cluster nodes small --history small-0
    """
    client = connect()
    if setup_log is not None:
        print(client.setup_log(name, setup_log), end="")
        return
    if history is not None:
        states = client.node_history(name, history)
        print_result(states, history_lines(states, time.time()), as_json)
        return
    found = client.cluster(name).nodes
    print_result(found, node_lines(found, time.time()), as_json)


def resize(
    name: Name,
    min_nodes: Annotated[int | None, option("N", "Nodes that always stay.", min=0)] = None,
    max_nodes: Annotated[int | None, option("N", "The most nodes it may have.", min=1)] = None,
    idle: Annotated[float | None, option("SECONDS", "How long an idle node stays.", min=0)] = None,
    now: Annotated[bool, switch("Requeue runs on released nodes instead of waiting for them.", "--now")] = False,
    as_json: Json = False,
) -> None:
    """Change how many nodes a cluster may have. Released nodes finish their runs first.

    \b
    Examples:
      muster cluster resize small --max-nodes 1
    """
    given = {"min_nodes": min_nodes, "max_nodes": max_nodes, "idle_seconds_before_scaledown": idle}
    options = {key: value for key, value in given.items() if value is not None}
    if not options:
        raise UserError("nothing to change.", "Give --min-nodes, --max-nodes or --idle.")
    _say(connect().change_cluster(name, options, now=now), as_json)


def set_(
    name: Name,
    settings: Annotated[list[str], argument("KEY=VALUE", "Settings; an empty value restores the default.")],
    as_json: Json = False,
) -> None:
    """Change settings of a cluster. They apply to runs that start from then on.

    \b
    Examples:
      muster cluster set small idle_seconds_before_scaledown=60
    """
    given = {key: yaml.safe_load(value) for key, value in parse_pairs("setting", settings).items()}
    _say(connect().change_cluster(name, given), as_json)


def stop(
    name: Name,
    now: Annotated[bool, switch("Requeue its runs instead of waiting for them.", "--now")] = False,
    as_json: Json = False,
) -> None:
    """Release a cluster's nodes once their jobs have ended. Nothing starts on it until `start`.

    \b
    Examples:
      muster cluster stop small
    """
    _say(connect().change_cluster(name, state="stopped", now=now), as_json)


def start(name: Name, as_json: Json = False) -> None:
    """Start a stopped cluster again.

    \b
    Examples:
      muster cluster start small
    """
    _say(connect().change_cluster(name, state="ready"), as_json)


def delete(
    name: Name,
    drain: Annotated[bool, switch("Delete it once its runs have ended.", "--drain")] = False,
    now: Annotated[bool, switch("Cancel the runs that use it.", "--now")] = False,
    as_json: Json = False,
) -> None:
    """Delete a cluster; without an option, only if no run uses it.

    \b
    Examples:
      muster cluster delete small --drain
    """
    if drain and now:
        raise Conflict("--drain and --now exclude each other.")
    connect().delete_cluster(name, "now" if now else "drain" if drain else "refuse")
    say(f"cluster {name} is deleted once its runs have ended" if drain else f"cluster {name} is deleted")
    if as_json:
        print_json({"name": name, "state": "deleting" if drain else "deleted"})


def cordon(
    name: Name,
    node: Nodes,
    reason: Annotated[str, option("TEXT", "Why; shown with the node.")] = "by hand",
    as_json: Json = False,
) -> None:
    """Keep new jobs off nodes; jobs that run there go on.

    \b
    Examples:
      muster cluster cordon small small-0 --reason "disk is being swapped"
    """
    client = connect()
    for item in node:
        client.cordon(name, item, reason=reason)
        say(f"{item} takes no new jobs")
    if as_json:
        print_json({"cordoned": node, "reason": reason})


def uncordon(name: Name, node: Nodes, as_json: Json = False) -> None:
    """Return nodes that were cordoned or set aside to service.

    \b
    Examples:
      muster cluster uncordon small small-0
    """
    client = connect()
    for item in node:
        client.cordon(name, item, cordoned=False)
        say(f"{item} takes jobs again")
    if as_json:
        print_json({"uncordoned": node})


def cost(
    by: Annotated[CostBy, option("WHAT", "run, user or cluster.")] = "run",
    all_: Annotated[bool, switch("Print every line, not only the 20 largest.", "--all")] = False,
    as_json: Json = False,
) -> None:
    """Show node hours used, and their cost where prices are known.

    \b
    Examples:
      muster cost
      muster cost --by user --json
    """
    found = connect_to_read().cost(by)
    print_result(found, cost_lines(found, None if all_ else _COST_LINES), as_json)
    if not all_ and not as_json and len(found.lines) > _COST_LINES:
        say(f"{len(found.lines) - _COST_LINES:,} more: `muster cost --all`")


def _show(view: ClusterView, as_json: bool) -> None:
    print_result(view, cluster_lines(view, Paint.of(sys.stdout), time.time()), as_json)


def _say(view: ChangedCluster, as_json: bool = False) -> None:
    for text in view.notices:
        notice(text)
    say(summary(view))
    if as_json:
        print_json(view)


COMMANDS = (with_flags(create, FLAGS), list_, show, check, nodes, cordon, uncordon, resize, set_, stop, start, delete)
