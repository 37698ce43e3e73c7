"""Runs that do not end by themselves: they answer requests until they are cancelled."""

from __future__ import annotations

from collections.abc import Sequence

from muster.wire.codec import Json

SERVE = "muster.scoring.serve"
DOOR = "muster.scoring.door"


def serves(command: Json) -> bool:
    """Whether a run's command is Muster's own server of models, or the front door of an endpoint.

    Such a run prints nothing while all is well, and nobody waits for its end.
    """
    if isinstance(command, str) or not isinstance(command, Sequence) or len(command) < 3:
        return False
    return command[1] == "-m" and command[2] in (SERVE, DOOR)


def shown_command(command: Sequence[str]) -> Sequence[str]:
    """A command without the settings that Muster handed to its own program as one long argument."""
    return [*command[:3], "…"] if serves(list(command)) and len(command) > 3 else command
