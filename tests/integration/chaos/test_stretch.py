"""A short stretch of the faults that `make chaos` injects by the hour; and that its checks find what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.chaos import processes
from tests.chaos.checks import Expected
from tests.chaos.stage import Stage, home
from tests.chaos.trial import Fault, Scene, play

SEEDS = 6


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with home() as folder:
        made = Stage(folder)
        made.open()
        left: list[str] = []
        try:
            yield made
        finally:
            left = made.close()
    assert left == []


QUICK = tuple(
    fault
    for fault in processes.PROCESSES
    if fault.inject
    in (
        processes.rank_killed,
        processes.keeper_killed,
        processes.nursery_killed,
        processes.node_killed,
        processes.server_killed,
        processes.rank_and_server_killed,
    )
)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_gang_meets_a_fault_and_nothing_is_lost_repeated_or_left(stage: Stage, seed: int) -> None:
    assert play(stage, QUICK, seed).broken == ()


def _blames_the_other(scene: Scene) -> Expected:
    return replace(processes.rank_killed(scene), rank=99)


def _adds_a_line(scene: Scene) -> Expected:
    """As if the rank had printed something that never arrived."""
    with (scene.stage.record.folder / f"{scene.run_id}.1.0.did").open("a") as book:
        book.write("printed 1000\nprinted 1001\n")
    return Expected()


def _takes_a_line(scene: Scene) -> Expected:
    """As if something had arrived twice: more is there than the rank has printed."""
    book = scene.stage.record.folder / f"{scene.run_id}.1.0.did"
    scene.stage.record.go_on(scene.run_id)
    scene.stage.wait_for_end(scene.run_id)
    lines = book.read_text().splitlines()
    book.write_text("\n".join(lines[:-10]) + "\n")
    return Expected()


def _is_submitted_by_nobody(scene: Scene) -> Expected:
    scene.stage.submit("true", 1, 1)
    scene.stage.record.submitted.pop()
    return Expected()


@pytest.mark.parametrize(
    ("inject", "said"),
    [
        (_blames_the_other, "is blamed, not rank 99"),
        (lambda scene: replace(processes.rank_killed(scene), codes=("node_lost",)), "not node_lost"),
        (_adds_a_line, "are there"),
        (_takes_a_line, "are there"),
        (_is_submitted_by_nobody, "nobody submitted"),
    ],
)
def test_what_is_wrong_is_found(stage: Stage, inject: object, said: str) -> None:
    fault = Fault("a wrong one", inject, ("middle",), ((1, 1),), (False,))  # type: ignore[arg-type]
    outcome = play(stage, [fault], 0)
    assert any(said in text for text in outcome.broken), outcome.broken
    # The stage's own record is whole again for the next one.
    stage.record.submitted[:] = [run.id for run in stage.client.runs()]
