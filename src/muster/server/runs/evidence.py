"""The evidence for a verdict, gathered from the records of an attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from muster.diagnosis.passages import TAIL_BYTES, is_explained, whole
from muster.server.nodes.allocations import shown_name
from muster.store.streams import Streams
from muster.wire.codec import from_json
from muster.wire.verdicts import Ending, Evidence, NodeEvidence, RankEvidence, Refusal

_SHORT_TAIL_BYTES = 8 << 10
_SHORTEST_TAIL_BYTES = 4 << 10
_TAILS = 1024
_SHORT_TAILS = 256
_LONG_TAILS = 32
_SEARCHED = 4
"""Logs that are searched as a whole where their ends explain nothing."""
_MOST_CHECKED = 64
"""How many of the first failed ranks are checked: whether the ends of their logs explain it."""
_COMMAND_CHARS = 2000


def gather(streams: Streams, run: Any, attempt: Any, nodes: Sequence[Any], ranks: Sequence[Any]) -> Evidence:
    """The evidence of an attempt, from its rows and the ends of its logs."""
    names = {row.node_rank: shown_name(row) for row in nodes}
    failed = attempt.stop_reason not in (None, "done")
    # Ranks that failed by themselves come first, in case there are more logs than are read.
    order = sorted(ranks, key=lambda row: (row.expected or row.exit_code == 0, row.ended_at or 0.0, row.rank))
    # What a rank printed that ended well may tell why the others lost it.
    tails = _tails(streams, run, attempt, order) if failed else {}
    commands = _commands(attempt.plan) if failed else {}
    made = Evidence(
        ranks=tuple(
            RankEvidence(
                rank=row.rank,
                node=names.get(row.node_rank, f"node {row.node_rank}"),
                exit_code=row.exit_code,
                signal=row.signal,
                expected=row.expected,
                essential=row.essential,
                state=row.state,
                ended_at=row.ended_at,
                said_at=row.evidence.get("said_at"),
                oom_killed=bool(row.evidence.get("oom_killed")),
                refusal=row.evidence.get("refusal"),
                lost_with=row.evidence.get("lost_with"),
                command=commands.get(row.rank, ""),
                role=row.role,
                tail=tails.get(row.rank, ""),
            )
            for row in order
        ),
        nodes=tuple(
            NodeEvidence(row.node_rank, names[row.node_rank], row.lost, row.leaving, _refusal(row)) for row in nodes
        ),
        stop_reason="rank_failed" if attempt.stop_reason == "rank_waited" else attempt.stop_reason,
        cancel_by=run.cancel_by,
        timeout_s=run.spec.get("limits", {}).get("timeout"),
        ending=from_json(Ending, attempt.ending) if attempt.ending else None,
    )
    return _with_earlier_errors(made, streams, run, attempt, {row.rank: row.log for row in ranks}) if failed else made


def _tails(streams: Streams, run: Any, attempt: Any, rows: Sequence[Any]) -> dict[int, str]:
    """The ends of logs: long ones of the first, short ones of many more."""
    lengths = [
        *[TAIL_BYTES] * _LONG_TAILS,
        *[_SHORT_TAIL_BYTES] * (_SHORT_TAILS - _LONG_TAILS),
        *[_SHORTEST_TAIL_BYTES] * (_TAILS - _SHORT_TAILS),
    ]
    return {
        row.rank: streams.tail(run.id, attempt.number, row.log, length)
        for row, length in zip(rows, lengths, strict=False)
    }


def _with_earlier_errors(
    evidence: Evidence, streams: Streams, run: Any, attempt: Any, logs: Mapping[int, str]
) -> Evidence:
    """The evidence with errors from further back in logs whose ends do not say why their ranks ended."""
    failed = islice((rank for rank in evidence.ranks if rank.failed and rank.tail), _MOST_CHECKED)
    unexplained = (rank.rank for rank in failed if not is_explained(rank))
    found = {}
    for number in islice(unexplained, _SEARCHED):
        size = streams.length(run.id, attempt.number, logs[number])
        if size > TAIL_BYTES:
            found[number] = partial(streams.read, run.id, attempt.number, logs[number]), size
    ranks = (
        replace(rank, tail=whole(rank.tail, found[rank.rank][1], found[rank.rank][0])) if rank.rank in found else rank
        for rank in evidence.ranks
    )
    return replace(evidence, ranks=tuple(ranks)) if found else evidence


def _refusal(row: Any) -> Refusal | None:
    return from_json(Refusal, row.refusal) if row.refusal else None


def _commands(plan: Any) -> dict[int, str]:
    """The command of each rank of a recorded plan; the rest of the plan is not parsed."""
    ranks = [rank for node in (plan or {}).get("nodes", ()) for rank in node["ranks"]]
    return {rank["rank"]: " ".join(rank["argv"])[:_COMMAND_CHARS] for rank in ranks}
