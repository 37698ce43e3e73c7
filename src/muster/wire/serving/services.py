"""Services: runs that answer requests until they are cancelled."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from muster.wire.codec import Json

SERVE = "muster.scoring.serve"
DOOR = "muster.scoring.door"
FILE_SERVER = "muster.fileserver"


def serves(command: Json) -> bool:
    """Whether a run's command is Muster's own server of models, the front door of an endpoint, or a file server.

    Such a run prints nothing while all is well, and nobody waits for its end.
    """
    if isinstance(command, str) or not isinstance(command, Sequence):
        return False
    # Options of Python may come before the module.
    head = [str(word) for word in command[1:4]]
    return any(pair in (("-m", SERVE), ("-m", DOOR), ("-m", FILE_SERVER)) for pair in pairwise(head))


def shown_command(command: Sequence[str]) -> Sequence[str]:
    """A command without the long JSON argument with settings of Muster's own programs."""
    return [*command[:3], "…"] if serves(list(command)) and len(command) > 3 else command
