"""Ranks that Slurm's PMIx serves: `srun` starts a stand-in for each, and the node's keeper starts the rank itself.

Standard library only.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Callable  # noqa: UP035  (this file also runs in the Python 3.8 of an image)

from muster.agent.run.mpi.standin import done_fifo, told_file


class PmixStep:
    """The stand-ins of one node."""

    def __init__(
        self, folder: str, program: str, ranks: Sequence[int], spawn: Callable[[str, dict[str, str]], str]
    ) -> None:
        """`spawn` runs a command with what is added to the environment, and says why it could not be started."""
        self._folder = folder
        self._program = program
        self._spawn = spawn
        self._came: set[int] = set()
        self._waiting: dict[int, int] = {}
        """By rank: what its stand-in waits at."""
        for rank in ranks:
            os.mkfifo(done_fifo(folder, rank), 0o600)
            # Open for reading, too: it need not wait for the stand-in.
            self._waiting[rank] = os.open(done_fifo(folder, rank), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def start(self, rank: int) -> str:
        """Start a rank whose stand-in has come; returns why it could not be started."""
        if rank in self._came:
            return ""
        self._came.add(rank)
        try:
            with open(told_file(self._folder, rank), "rb") as file:  # noqa: PTH123
                lines = file.read().decode("utf-8", "surrogateescape").split("\0")
        except OSError as error:
            return f"what PMIx told it cannot be read: {error.strerror}"
        told = dict(line.split("=", 1) for line in lines if "=" in line)
        return self._spawn(shlex.quote(self._program), told)

    def ended(self, rank: int, status: int) -> None:
        """Let the stand-in of a rank go that has ended well. The others stay: srun would end the step."""
        waiting = self._waiting.pop(rank, None) if status == 0 else None
        if waiting is not None:
            os.write(waiting, b".")
            os.close(waiting)
