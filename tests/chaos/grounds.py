"""Every ground: where gangs run, and the faults that they meet there."""

from __future__ import annotations

from tests.chaos.campaign import Ground
from tests.chaos.processes import PROCESSES
from tests.chaos.stage import Stage

GROUNDS = (Ground("local", "local", Stage, PROCESSES),)
