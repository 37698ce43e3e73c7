"""What the nodes of an attempt reported before it starts: whether they agree, and the network that they share."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, select

from muster.clusters.options import parse_options
from muster.errors import JobError
from muster.job.spec import JobSpec
from muster.launch.fabric import Wanted
from muster.launch.plan import with_network
from muster.launch.preflight import disagreement, joined_notices
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.nodes.allocations import shown_name
from muster.server.runs.attempt_record import Record
from muster.wire.codec import from_json
from muster.wire.node.agents import Facts
from muster.wire.node.plan import Slot

_OPTIONS = select(tables.clusters.c.options).where(tables.clusters.c.name == bindparam("name"))


class NotReady(Exception):
    """The gang cannot start on these nodes; becomes the attempt's refusal."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def check_agreement(nodes: Sequence[Record]) -> None:
    """Raises NotReady where the nodes would not work together."""
    if len({node.resumed for node in nodes}) > 1:
        # One of them found the newest checkpoint damaged.
        raise NotReady(
            "platform", "the nodes found different checkpoints to resume from; a damaged one is not used again"
        )
    trouble = disagreement([shown_name(node) for node in nodes], _facts(nodes))
    if trouble:
        raise NotReady("environment", trouble)


def notices(nodes: Sequence[Record]) -> list[str]:
    """The notices of the nodes, each once."""
    return joined_notices([shown_name(node) for node in nodes], _facts(nodes))


def machines(nodes: Sequence[Record]) -> list[str]:
    """A key for each node's machine: the same for nodes that share a machine and its host name."""
    return [facts.machine or node.host for node, facts in zip(nodes, _facts(nodes), strict=True)]


def _facts(nodes: Sequence[Record]) -> list[Facts]:
    return [from_json(Facts, node.facts or {}) for node in nodes]


def networked(
    transaction: Transaction, nodes: Sequence[Record], spec: JobSpec, slots: Sequence[Slot]
) -> tuple[tuple[Slot, ...], tuple[str, ...]]:
    """The slots with the network that they share; raises NotReady where the cluster's interface is missing."""
    devices = [facts.devices for facts in _facts(nodes)]
    if None in devices:
        return tuple(slots), ()
    row = transaction.execute(_OPTIONS, {"name": nodes[0].cluster}).first()
    options = parse_options(row.options if row else {})
    try:
        return with_network(spec, slots, devices, Wanted(options.interface, options.subnet))
    except JobError as error:
        raise NotReady("bad_input", f"{error.message}. {error.hint}") from error
