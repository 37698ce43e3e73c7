"""Environments of queued runs: builds are planned before each pass over the queue; reports of nodes are recorded."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sqlalchemy import bindparam, select

from muster.clusters.options import parse_options
from muster.control.scheduling.builds import plan_builds
from muster.control.scheduling.capacity import Capacity
from muster.control.scheduling.model import Node, Rules
from muster.server.context import Context
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.database.records import add_note
from muster.server.environments.builds import Sharing
from muster.server.runs import attempts
from muster.store.arrivals import Log
from muster.wire import states
from muster.wire.environments import BuiltEnvironment
from muster.wire.node.agents import Chunk
from muster.wire.node.builds import BuildReport
from muster.wire.verdicts import Refusal

LOG = "user_logs/environment_build.txt"
_WAITING = select(*tables.runs.c["id", "attempt"]).where(
    tables.runs.c.id.in_(bindparam("ids", expanding=True)), tables.runs.c.status == states.QUEUED
)

_CLUSTERS = select(*tables.clusters.c["name", "engine", "options"]).where(
    tables.clusters.c.name.in_(bindparam("names", expanding=True))
)


def before_pass(
    context: Context, transaction: Transaction, capacity: Capacity, rules: dict[str, Rules]
) -> tuple[dict[str, Rules], list[tuple[str, str]]]:
    """Plan builds for the queued runs that could start.

    Returns the rules of a pass in which these wait, and the nodes that got something to build, with their clusters.
    """
    queue, builds = context.runs.queue, context.runs.builds
    if not queue.environments.has_any and not builds.nodes():
        return rules, []

    def can_build(node: Node) -> bool:
        contact = context.hub.contacts.get(node.name)
        return contact is None or contact.builds

    wishes = [wish for found in queue.queues.values() for wish in queue.environments.wishes(found)]
    plan = plan_builds(wishes, capacity, rules, builds.ready, can_build)
    clusters = {node.name: name for name in rules for node in capacity.nodes(name)}
    sharing = _sharing(context, transaction, {clusters[node.name] for node in plan.asked.values()})
    changed = builds.take(plan, clusters, queue.environments.recipes, sharing)
    if changed:
        transaction.after_commit.append(lambda: context.hub.changed(nodes=changed))
    begun = sorted(pair for pair in builds.nodes() if pair[1] in changed)
    if not plan.held and not plan.kept_off:
        return rules, begun
    waiting = {
        name: replace(rule, held={**rule.held, **plan.held}, kept_off=plan.kept_off) for name, rule in rules.items()
    }
    return waiting, begun


def _sharing(context: Context, transaction: Transaction, clusters: Collection[str]) -> dict[str, Sharing]:
    """Whether nodes of each cluster take environments from each other."""
    if not clusters:
        return {}
    rows = transaction.execute(_CLUSTERS, {"names": sorted(clusters)})
    found = {}
    for row in rows:
        here = context.nodes.engines.on_this_machine(row.engine)
        found[row.name] = Sharing(parse_options(row.options or {}).shares_data(here), here)
    return found


def take_report(context: Context, transaction: Transaction, node: str, report: BuildReport) -> bool:
    """Record that an environment is ready or cannot be built, which fails its runs. Returns whether any run waited."""
    asked = context.runs.builds.settle(node, report.id, is_there=report.environment is not None)
    if asked is None:
        return False
    waiting = transaction.execute(_WAITING, {"ids": list(asked.order.runs)}).all()
    for row in waiting:
        _keep_log(context, row.id, row.attempt + 1, report.log)
        if report.environment is not None:
            _announce(transaction, row.id, node, asked.order.recipe.label, report.environment)
        else:
            refusal = report.refusal or Refusal("platform", "the environment could not be built")
            attempts.refuse(context, transaction, row.id, asked.node, refusal)
    runs = [row.id for row in waiting]
    transaction.after_commit.append(lambda: _tell(context, node, runs))
    return bool(waiting)


def _tell(context: Context, node: str, runs: list[str]) -> None:
    """Wake the waiting runs; the node's next heartbeat would say too late that it no longer builds."""
    contact = context.hub.contacts.get(node)
    if contact is not None:
        contact.doing = {run: what for run, what in contact.doing.items() if run not in runs}
    context.hub.changed(nodes=[node], runs=runs, queue=True)


def _announce(transaction: Transaction, run_id: str, node: str, label: str, built: BuiltEnvironment) -> None:
    if built.built_s is not None:
        text = f"{node}: the environment {label} ({built.key}) is ready after {built.built_s:.1f} s"
        add_note(transaction, run_id, "info", text)


def _keep_log(context: Context, run_id: str, attempt: int, text: str) -> None:
    """Keep the build's output in the log of the attempt that follows."""
    if text:
        lengths = context.files.streams.append([Chunk(run_id, attempt, LOG, 0, text.encode())])
        logs = {Log(number, stream): length for (_, number, stream), length in lengths.items()}
        context.files.arrivals.record(run_id, logs)
