"""What is recorded of an attempt, gathered for the judgement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.server.nodes.allocations import shown_name
from muster.store.streams import Streams
from muster.wire.codec import from_json
from muster.wire.verdicts import Ending, Evidence, NodeEvidence, RankEvidence, Refusal

_TAIL_BYTES = 32 << 10
_TAILS = 1024
_COMMAND_CHARS = 2000


def gather(streams: Streams, run: Any, attempt: Any, nodes: Sequence[Any], ranks: Sequence[Any]) -> Evidence:
    """The evidence of an attempt, from its rows and the ends of its logs."""
    names = {row.node_rank: shown_name(row) for row in nodes}
    failed = attempt.stop_reason not in (None, "done")
    # Those that failed by themselves come first, should there be more logs than are read.
    order = sorted(ranks, key=lambda row: (row.expected or row.exit_code == 0, row.ended_at or 0.0, row.rank))
    with_tail = {row.rank for row in order[:_TAILS] if row.exit_code != 0} if failed else set()
    commands = _commands(attempt.plan) if failed else {}
    return Evidence(
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
                oom_killed=bool(row.evidence.get("oom_killed")),
                refusal=row.evidence.get("refusal"),
                lost_with=row.evidence.get("lost_with"),
                command=commands.get(row.rank, ""),
                role=row.role,
                tail=streams.tail(run.id, attempt.number, row.log, _TAIL_BYTES) if row.rank in with_tail else "",
            )
            for row in order
        ),
        nodes=tuple(
            NodeEvidence(row.node_rank, names[row.node_rank], row.lost, row.leaving, _refusal(row)) for row in nodes
        ),
        stop_reason=attempt.stop_reason,
        cancel_by=run.cancel_by,
        timeout_s=run.spec.get("limits", {}).get("timeout"),
        ending=from_json(Ending, attempt.ending) if attempt.ending else None,
    )


def _refusal(row: Any) -> Refusal | None:
    return from_json(Refusal, row.refusal) if row.refusal else None


def _commands(plan: Any) -> dict[int, str]:
    """What each rank of a recorded plan runs; most of the plan is not looked at."""
    ranks = [rank for node in (plan or {}).get("nodes", ()) for rank in node["ranks"]]
    return {rank["rank"]: " ".join(rank["argv"])[:_COMMAND_CHARS] for rank in ranks}
