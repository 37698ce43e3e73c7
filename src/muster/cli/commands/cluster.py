"""Clusters: `muster cluster …`, and what they cost: `muster cost`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import yaml

from muster.cli.clustertable import cluster_lines, cost_lines, listing, node_lines, summary
from muster.cli.console import Paint, notice, say
from muster.cli.options import Json, print_json
from muster.client.connect import connect
from muster.clusters.file import ClusterFile, load_cluster_file
from muster.errors import Conflict, UserError

Name = Annotated[str, typer.Argument(metavar="NAME", help="The cluster's name.", show_default=False)]
Nodes = Annotated[list[str], typer.Argument(metavar="NODE", help="Nodes of the cluster.", show_default=False)]


def create(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The cluster's name; the file's else.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="A cluster file, or one of Azure ML.")
    ] = None,
    min_nodes: Annotated[int | None, typer.Option(min=0, metavar="N", help="Nodes that always stay (0).")] = None,
    max_nodes: Annotated[int | None, typer.Option(min=1, metavar="N", help="The most nodes it may have.")] = None,
    idle: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="How long an idle node stays (1800).")
    ] = None,
    size: Annotated[str | None, typer.Option(metavar="SIZE", help="A machine size, such as Standard_NC6s_v3.")] = None,
    cpus: Annotated[int | None, typer.Option(min=1, metavar="N", help="CPUs of each node; else shared.")] = None,
    gpus: Annotated[int | None, typer.Option(min=0, metavar="N", help="GPUs of each node; else shared.")] = None,
    setup: Annotated[str | None, typer.Option(metavar="COMMAND", help="Run on each node before its first job.")] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="ENGINE", help="Where nodes come from: local, ray or slurm.")
    ] = None,
    partition: Annotated[str | None, typer.Option(metavar="NAME", help="Slurm: the partition.")] = None,
    account: Annotated[str | None, typer.Option(metavar="NAME", help="Slurm: who is charged.")] = None,
    qos: Annotated[str | None, typer.Option(metavar="NAME", help="Slurm: the quality of service.")] = None,
    constraint: Annotated[str | None, typer.Option(metavar="FEATURES", help="Slurm: what nodes must have.")] = None,
    gres: Annotated[str | None, typer.Option(metavar="GRES", help="Slurm: of each node, such as gpu:a100:4.")] = None,
    time_limit: Annotated[
        str | None, typer.Option("--time", metavar="TIME", help="Slurm: the longest that one job takes.")
    ] = None,
    exclude: Annotated[str | None, typer.Option(metavar="NODES", help="Slurm: nodes to keep off.")] = None,
    sbatch: Annotated[
        list[str] | None, typer.Option(metavar="LINE", help="Slurm: a further #SBATCH line; repeatable.")
    ] = None,
    chain: Annotated[
        bool | None,
        typer.Option("--chain", help="Slurm: go on in the next job when the time is up.", show_default=False),
    ] = None,
    address: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Ray: its head, such as ray://10.0.0.1:10001.")
    ] = None,
    token_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Ray: the file with the cluster's token.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Any other setting of its engine; repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a cluster: nodes of one kind that come when jobs wait and go when they are idle.

    On this machine its nodes are simulated; all that a file can say is in docs/clusters.md, for Slurm in
    docs/slurm.md, for Ray in docs/ray.md.

    \b
    Examples:
      muster cluster create small --min-nodes 1 --max-nodes 2
      muster cluster create --file cluster.yml
    """
    wanted = load_cluster_file(file) if file is not None else ClusterFile(None, "local", {})
    chosen = name or wanted.name
    if chosen is None:
        raise UserError("the cluster has no name.", "Give one: `muster cluster create NAME`, or `name:` in the file.")
    given = {
        "min_nodes": min_nodes,
        "max_nodes": max_nodes,
        "idle_seconds_before_scaledown": idle,
        "vm_size": size,
        "cpus": cpus,
        "gpus": gpus,
        "setup": setup,
        "partition": partition,
        "account": account,
        "qos": qos,
        "constraint": constraint,
        "gres": gres,
        "time": time_limit,
        "exclude": exclude,
        "sbatch": sbatch or None,
        "chain": chain or None,
        "address": address,
        "token_file": token_file,
        **_settings(option or []),
    }
    options = wanted.options | {key: value for key, value in given.items() if value is not None}
    made = connect().create_cluster({"name": chosen, "engine": engine or wanted.engine, "options": options})
    for text in (*wanted.notices, *made.get("notices", ())):
        notice(text)
    _show(made, as_json)


def list_(as_json: Json = False) -> None:
    """List the clusters of this workspace.

    \b
    Examples:
      muster cluster list
      muster cluster list --json
    """
    found = connect().clusters()
    if as_json:
        print_json(found)
    else:
        print("\n".join(listing(found)))


def show(name: Name, as_json: Json = False) -> None:
    """Tell about one cluster and its nodes.

    \b
    Examples:
      muster cluster show small
    """
    _show(connect().cluster(name), as_json)


def nodes(
    name: Name,
    history: Annotated[
        str | None, typer.Option(metavar="NODE", help="What this node has been, and why.", show_default=False)
    ] = None,
    setup_log: Annotated[
        str | None, typer.Option(metavar="NODE", help="What this node's set-up printed.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """List a cluster's nodes with their states and why they are in them.

    \b
    Examples:
      muster cluster nodes small
      muster cluster nodes small --history small-0
    """
    client = connect()
    if setup_log is not None:
        print(client.setup_log(name, setup_log), end="")
        return
    found = client.cluster(name)["nodes"] if history is None else client.node_history(name, history)
    if as_json:
        print_json(found)
    else:
        print("\n".join(node_lines(found, time.time())))


def resize(
    name: Name,
    min_nodes: Annotated[int | None, typer.Option(min=0, metavar="N", help="Nodes that always stay.")] = None,
    max_nodes: Annotated[int | None, typer.Option(min=1, metavar="N", help="The most nodes it may have.")] = None,
    idle: Annotated[float | None, typer.Option(min=0, metavar="SECONDS", help="How long an idle node stays.")] = None,
    now: Annotated[
        bool, typer.Option("--now", help="Queue runs on nodes that go again, instead of waiting.", show_default=False)
    ] = False,
) -> None:
    """Change how many nodes a cluster may have. Nodes that go finish their runs first.

    \b
    Examples:
      muster cluster resize small --max-nodes 1
    """
    given = {"min_nodes": min_nodes, "max_nodes": max_nodes, "idle_seconds_before_scaledown": idle}
    options = {key: value for key, value in given.items() if value is not None}
    if not options:
        raise UserError("nothing to change.", "Give --min-nodes, --max-nodes or --idle.")
    _say(connect().change_cluster(name, options, now=now))


def stop(
    name: Name,
    now: Annotated[
        bool, typer.Option("--now", help="Queue its runs again, instead of waiting for them.", show_default=False)
    ] = False,
) -> None:
    """Send a cluster's nodes away, and start nothing on it until `start`. Running jobs end first.

    \b
    Examples:
      muster cluster stop small
    """
    _say(connect().change_cluster(name, state="stopped", now=now))


def start(name: Name) -> None:
    """Let a stopped cluster work again.

    \b
    Examples:
      muster cluster start small
    """
    _say(connect().change_cluster(name, state="ready"))


def delete(
    name: Name,
    drain: Annotated[
        bool, typer.Option("--drain", help="Once the runs that use it have ended.", show_default=False)
    ] = False,
    now: Annotated[bool, typer.Option("--now", help="Cancel the runs that use it.", show_default=False)] = False,
) -> None:
    """Delete a cluster; without an option only one that no run uses.

    \b
    Examples:
      muster cluster delete small --drain
    """
    if drain and now:
        raise Conflict("--drain and --now exclude each other.")
    connect().delete_cluster(name, "now" if now else "drain" if drain else "refuse")
    say(f"cluster {name} goes once its runs have ended" if drain else f"cluster {name} is deleted")


def cordon(
    name: Name,
    node: Nodes,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; shown with the node.")] = "by hand",
) -> None:
    """Keep new jobs off nodes; what runs there goes on.

    \b
    Examples:
      muster cluster cordon small small-0 --reason "disk is being swapped"
    """
    client = connect()
    for item in node:
        client.cordon(name, item, reason=reason)
        say(f"{item} takes no new jobs")


def uncordon(name: Name, node: Nodes) -> None:
    """Take nodes back that were cordoned, or set aside after failures.

    \b
    Examples:
      muster cluster uncordon small small-0
    """
    client = connect()
    for item in node:
        client.cordon(name, item, cordoned=False)
        say(f"{item} is taken back")


def cost(
    by: Annotated[
        Literal["run", "user", "cluster"], typer.Option(metavar="WHAT", help="run, user or cluster.")
    ] = "run",
    as_json: Json = False,
) -> None:
    """Tell how many node hours were used, and what they cost where prices are known.

    \b
    Examples:
      muster cost
      muster cost --by user --json
    """
    found = connect().cost(by)
    if as_json:
        print_json(found)
    else:
        print("\n".join(cost_lines(found)))


def _settings(given: list[str]) -> dict[str, Any]:
    """`KEY=VALUE`, with values as a cluster file would have them."""
    found: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UserError(f"--option {text}: no setting.", "Write KEY=VALUE, such as poll_seconds=10.")
        found[key.strip()] = yaml.safe_load(value)
    return found


def _show(view: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(view)
    else:
        print("\n".join(cluster_lines(view, Paint.of(sys.stdout), time.time())))


def _say(view: dict[str, Any]) -> None:
    for text in view.get("notices", ()):
        notice(text)
    say(summary(view))


COMMANDS: dict[str, Callable[..., None]] = {
    "create": create,
    "list": list_,
    "show": show,
    "nodes": nodes,
    "cordon": cordon,
    "uncordon": uncordon,
    "resize": resize,
    "stop": stop,
    "start": start,
    "delete": delete,
}
