"""A stretch of the simulation of decisions and agents; and that it finds what it should, shrunk to a few steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.simulated import play
from tests.simulated.pure_server import AttemptRow, NodeRow, PureServer, RunRow
from tests.simulated.real_server import RealServer
from tests.simulated.world import Answer, Delivery

from muster.wire.node.agents import Event, Prepared


@pytest.mark.parametrize("seed", range(60))
def test_no_invariant_of_the_pure_decisions_breaks(seed: int) -> None:
    _, failure = play.play(PureServer, 1_000_000 + seed)
    assert failure is None


@pytest.mark.parametrize("seed", range(3))
def test_no_invariant_of_the_real_server_breaks(seed: int) -> None:
    _, failure = play.play(RealServer, 2_000_000 + seed, steps=500)
    assert failure is None


class ForgetsHolders(PureServer):
    """Gives nodes to a gang whose attempts were never counted."""

    def schedule(self) -> None:
        holding = {run.id: run.attempts for run in self._runs.values()}
        for run in self._runs.values():
            run.attempts = []
        super().schedule()
        for run in self._runs.values():
            run.attempts = holding[run.id] + [AttemptRow(len(holding[run.id]) + 1, item.nodes) for item in run.attempts]


class CountsTwice(PureServer):
    """Appends whatever comes, wherever it begins."""

    def deliver(self, node: str, delivery: Delivery) -> Answer:
        answer = super().deliver(node, delivery)
        for chunk in delivery.chunks:
            row = self._row(chunk.key, node)
            if row is not None and chunk.offset + chunk.size <= row.length and chunk.offset:
                row.length += chunk.size
                answer.lengths[chunk.key] = row.length
        return answer


class NeverGivesUp(PureServer):
    """Waits for ever for a node that has gone."""

    def _lose(self, run: RunRow, attempt: AttemptRow, row: NodeRow, give_up: bool) -> None:
        """Nothing is noted."""


@pytest.mark.parametrize(
    ("server", "said"),
    [(ForgetsHolders, "slots, and"), (CountsTwice, "printed"), (NeverGivesUp, "Broken")],
)
def test_what_is_wrong_is_found_and_shrunk_to_a_few_choices(server: Callable[[], PureServer], said: str) -> None:
    failures = (play.play(server, seed)[1] for seed in range(200))
    failure = next(item for item in failures if item is not None)
    assert said in failure.message
    assert len(failure.choices) < 60
    assert said in play.again(server, failure.choices), "the same choices break it again"


def test_an_attempt_whose_folder_is_gone_takes_no_other_along() -> None:
    server = RealServer()
    try:
        server.submit("r0", 1, 1)
        server.submit("r1", 1, 1)
        server.schedule()
        server.hello("n0", "a", ())
        orders = server.orders("n0", "a")
        assert orders is not None
        assert len(orders) == 2
        for order in orders:
            ports = tuple(range(40_000, 40_000 + order.ports_count))
            server.deliver("n0", _prepared(order.run, order.attempt, ports))
        server.hello("n0", "b", (("r1", 1),))
        phases = {run.id: run.attempts[0].placements[0].phase for run in server.runs()}
        assert phases == {"r0": "given_up", "r1": "prepared"}
    finally:
        server.close()


def _prepared(run: str, attempt: int, ports: tuple[int, ...]) -> Delivery:
    return Delivery("a", (Event(run, attempt, 0.0, Prepared(ports)),), (), ((run, attempt),))
