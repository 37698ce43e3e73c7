"""The front door's connection to the only replica of an endpoint, which then takes requests at its address itself."""

from __future__ import annotations

import select
import socket
from typing import Optional

from muster.scoring.door import handover, said
from muster.scoring.door.handover import Closed, Hello, Line
from muster.scoring.door.table import Backend, telling

_ANSWER_S = 2.0


class Direct:
    """A replica that has the endpoint's listener, or had it."""

    def __init__(self, backend: Backend, line: Line, held: Optional[socket.socket]) -> None:
        self.backend = backend
        self.line = line
        self.held = held
        """The listener that it holds from an earlier front door, which is gone."""
        self.said = said.Said()
        self.accepts = False
        """It was asked to take connections."""
        self.is_taking = False
        """It takes connections."""
        self.silence = said.Silence()
        self._told = 0

    def tell(self, text: bytes, version: int, accepts: bool, listener: socket.socket) -> None:
        """Send it the table; with the listener if it should take connections from now on."""
        handed = listener if accepts and not self.accepts else None
        self.accepts = accepts
        self.is_taking = self.is_taking and accepts
        self._told = version
        try:
            self.line.send(telling(accepts, text), handed)
        except OSError:
            pass  # it has just died, which the next read shows

    def read(self) -> bool:
        """Read its reports once some have arrived; returns whether it has just begun to take connections."""
        fresh = False
        for text in self.line.receive():
            report = said.parse(text)
            if report is None:
                continue
            self.said = report
            self.silence.end()
            if self.accepts and not self.is_taking and report.seen >= self._told:
                self.is_taking = fresh = True
        return fresh

    @property
    def is_done(self) -> bool:
        """It takes no more connections, and has none left."""
        return not self.accepts and self.said.seen >= self._told and not self.said.open.get(self.backend.url)


def reach(backend: Backend) -> Optional[Direct]:
    """Connect to a replica; None if it cannot be reached from here."""
    line = handover.reach(backend.run, backend.port)
    if line is None:
        return None
    try:
        line.send(Hello(backend.key, backend.url).line())
        # Lines before the first table only show that it is there.
        if not select.select([line.connection], [], [], _ANSWER_S)[0] or not line.receive():
            raise Closed("no answer")
    except (Closed, OSError):
        line.close()
        return None
    return Direct(backend, line, line.taken())
