"""Plays episodes by seed, and shrinks one that breaks an invariant to a few choices."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.simulated.world import Broken, Choices, Server, World

STEPS = 1000
"""Of an episode, before everything settles."""

Make = Callable[[], Server]


@dataclass(frozen=True)
class Failure:
    """A broken invariant, and the fewest choices found that break it."""

    seed: int
    message: str
    choices: tuple[int, ...]
    steps: int


def episode(make: Make, choices: Choices, steps: int) -> tuple[int, str]:
    """The steps of one episode, and what broke; empty: nothing."""
    world = World(make())
    try:
        while world.steps < steps and not choices.over:
            world.step(choices)
        world.settle()
    except (Broken, AssertionError, LookupError, TypeError, ValueError, AttributeError) as error:
        return world.steps, f"{type(error).__name__}: {error}"
    finally:
        world.server.close()
    return world.steps, ""


def again(make: Make, made: Sequence[int]) -> str:
    """What breaks when the same choices are made again; empty: nothing."""
    return episode(make, Choices.of(made), len(made))[1]


def play(make: Make, seed: int, steps: int = STEPS) -> tuple[int, Failure | None]:
    """One episode: its steps, and its failure, shrunk."""
    chance = random.Random(seed)
    choices = Choices(lambda: chance.getrandbits(16))
    taken, message = episode(make, choices, steps)
    if not message:
        return taken, None
    fewest = shrink(lambda made: bool(again(make, made)), choices.made)
    return taken, Failure(seed, again(make, fewest) or message, tuple(fewest), taken)


def shrink(fails: Callable[[Sequence[int]], bool], made: Sequence[int], tries: int = 3000) -> list[int]:
    """Leave out what the failure does not need: long stretches first, then shorter ones, then smaller numbers."""
    best, size = list(made), len(made) // 2
    while size >= 1 and tries > 0:
        begin, shorter = 0, False
        while begin < len(best) and tries > 0:
            without = best[:begin] + best[begin + size :]
            tries -= 1
            if fails(without):
                best, shorter = without, True
            else:
                begin += size
        if not shorter or size > 1:
            size //= 2
    return best
