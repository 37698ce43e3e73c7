"""What the judgement gets to see of an attempt."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from muster.server.runs.evidence import gather


class Logs:
    """The logs of ranks, by name."""

    def __init__(self, **texts: str) -> None:
        self._texts = texts

    def tail(self, run_id: str, attempt: int, log: str, length: int) -> str:
        return self._texts[log][-length:]

    def length(self, run_id: str, attempt: int, log: str) -> int:
        return len(self._texts[log])


def row(number: int, **how: Any) -> SimpleNamespace:
    usual = {"signal": None, "expected": False, "essential": True, "state": "ended", "ended_at": 1.0, "role": ""}
    return SimpleNamespace(rank=number, node_rank=0, log=f"log_{number}", evidence={}, **(usual | how))


def test_what_a_rank_said_that_ended_well_is_looked_at_too() -> None:
    """It may have left while the others still needed it."""
    run = SimpleNamespace(id="r", cancel_by=None, spec={})
    attempt = SimpleNamespace(number=0, stop_reason="rank_failed", plan=None, ending=None)
    logs = Logs(log_0="lost a peer\n", log_1="no data is left\n")
    made = gather(logs, run, attempt, [], [row(0, exit_code=1), row(1, exit_code=0)])  # type: ignore[arg-type]
    assert {rank.rank: rank.tail for rank in made.ranks} == {0: "lost a peer\n", 1: "no data is left\n"}
