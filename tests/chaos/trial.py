"""One seed: a gang, a moment, a fault, and what must hold afterwards."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import psutil
from tests.chaos.checks import Expected, broken, lost_submissions
from tests.chaos.stage import Stage
from tests.chaos.waiting import Stuck, until

from muster.errors import MusterError
from muster.wire import states

LINES = 60
MOMENTS = ("submitted", "begun", "flowing", "middle", "last")
"""When a fault is injected: before anything runs, at the first line, while lines flow, between two, at the last one."""
RETRY = {"node_loss": 1, "platform": 1, "user_error": 1, "on_codes": ["signal", "host_oom"], "backoff_s": 0}
NO_RETRY = {"node_loss": 0, "platform": 0, "user_error": 0}


@dataclass
class Scene:
    """What a fault finds."""

    stage: Stage
    run_id: str
    nodes: int
    ranks: int
    moment: str
    retried: bool
    """The policy of the run allows another attempt."""
    chance: random.Random
    undo: list[Callable[[], None]] = field(default_factory=list)
    """Called before the run goes on to its end, so that a fault that must pass has passed."""

    @property
    def num_ranks(self) -> int:
        return self.nodes * self.ranks

    def any_rank(self) -> int:
        return self.chance.randrange(self.num_ranks)

    def fails(self, *codes: str, rank: int | None = None, node: str | None = None) -> Expected:
        """The attempt fails with one of these, and another follows where the policy allows it."""
        return Expected(codes, rank, node, retried=self.retried)


@dataclass(frozen=True)
class Fault:
    """Something that is done to a run or to what it stands on."""

    name: str
    inject: Callable[[Scene], Expected]
    moments: tuple[str, ...] = MOMENTS[1:]
    shapes: tuple[tuple[int, int], ...] = ((2, 1), (2, 1), (1, 2))
    """Nodes and ranks per node."""
    retried: tuple[bool, ...] = (False, True)
    before: Callable[[Stage, random.Random], None] | None = None
    """Done before the run is submitted."""


@dataclass(frozen=True)
class Outcome:
    """What came of a seed."""

    seed: int
    fault: str
    moment: str
    broken: tuple[str, ...]
    lines: int
    """How many printed lines were compared."""
    seconds: float


def play(stage: Stage, faults: Sequence[Fault], seed: int) -> Outcome:
    """One seed on a stage; the same seed chooses the same again."""
    chance = random.Random(f"{stage.name}.{seed}")
    # Faults take turns, so that each comes as often as the others.
    fault = faults[seed % len(faults)]
    moment, shape, retried = chance.choice(fault.moments), chance.choice(fault.shapes), chance.choice(fault.retried)
    began = time.monotonic()
    known = set(stage.record.submitted)
    found: list[str] = []
    try:
        found = _play(stage, fault, moment, shape, retried, chance)
    except Stuck as error:
        found = [f"stuck: {error}"]
    except MusterError as error:
        found = [f"an error that the fault does not explain: {type(error).__name__}: {error}"]
    except psutil.Error as error:
        found = [f"the fault found no process to meet: {error}"]
    runs = [run for run in stage.record.submitted if run not in known]
    lines = sum(
        stage.record.of(run, attempt, rank).printed
        for run in runs
        for attempt in (1, 2)
        for rank in range(shape[0] * shape[1])
    )
    return Outcome(seed, fault.name, moment, tuple(found), lines, time.monotonic() - began)


def _play(
    stage: Stage, fault: Fault, moment: str, shape: tuple[int, int], retried: bool, chance: random.Random
) -> list[str]:
    began, (nodes, ranks) = time.monotonic(), shape
    # Where lines flow, none of the ranks ends before the fault, however long that takes to come.
    hold = {"begun": 1, "flowing": LINES - 1, "middle": LINES // 2, "last": LINES - 1}.get(moment, -1)
    pause_s = 0.02 if moment == "flowing" else 0.002
    command = stage.record.command(LINES, hold, pause_s)
    if fault.before is not None:
        fault.before(stage, chance)
    run_id = stage.submit(command, nodes, ranks, retry=RETRY if retried else NO_RETRY)
    scene = Scene(stage, run_id, nodes, ranks, moment, retried, chance)
    _wait_for(scene)
    expected = fault.inject(scene)
    try:
        stage.record.go_on(scene.run_id)
    finally:
        for step in scene.undo:
            step()
    view = stage.wait_for_end(scene.run_id)
    if view.status not in states.TERMINAL:
        return [f"{scene.run_id} is {view.status}"]
    found = broken(stage.client, stage.record, scene.run_id, expected, LINES, stage.leftovers, time.monotonic() - began)
    return [*found, *lost_submissions(stage.client, stage.record.submitted)]


def _wait_for(scene: Scene) -> None:
    """The moment at which the fault comes."""
    if scene.moment == "submitted":
        return
    record = scene.stage.record

    def there() -> bool:
        done = [record.of(scene.run_id, 1, rank) for rank in range(scene.num_ranks)]
        return all(item.printed >= 3 if scene.moment == "flowing" else item.holding for item in done)

    until(lambda: there() or scene.stage.client.run(scene.run_id).status in states.TERMINAL, f"{scene.moment}")
