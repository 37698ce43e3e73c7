"""Reads the event files of all attempts of a node in a thread of its own, so that it delays no delivery."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field

from muster.agent.services import NodeServices
from muster.agent.ship.eventfiles.reading import SHOWN, Reading
from muster.paths import AttemptPaths
from muster.wire.node.agents import AttemptKey, Order

log = logging.getLogger(__name__)

SWITCH = "MUSTER_READ_EVENT_FILES"
"""A job's variable that, set to 0, turns reading off: its event files are then only kept."""
_PASS_S = 0.4
_LAST_S = 20.0
_OFF = ("0", "false", "off", "no")


@dataclass
class _Watched:
    order: Order
    reading: Reading
    noted: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)


class EventFiles(threading.Thread):
    """The event files of a node."""

    def __init__(self, services: NodeServices) -> None:
        super().__init__(name="event files", daemon=True)
        self._services = services
        self._watched: dict[AttemptKey, _Watched] = {}
        self._wake = threading.Event()
        self._closing = False

    def watch(self, order: Order, paths: AttemptPaths) -> None:
        """Begin to read an attempt's files."""
        if order.user_env.get(SWITCH, "").lower() not in _OFF:
            self._watched[order.key] = _Watched(order, _reading(order, paths))
            self._wake.set()

    def finish(self, order: Order, paths: AttemptPaths) -> list[str]:
        """No process is left: read the rest. Returns notes."""
        if order.user_env.get(SWITCH, "").lower() in _OFF:
            return []
        watched = self._watched.pop(order.key, None) or _Watched(order, _reading(order, paths))
        deadline = time.monotonic() + _LAST_S
        with watched.lock:
            while self._read(watched, final=True) and time.monotonic() < deadline:
                pass
        return watched.reading.notes()

    def close(self) -> None:
        self._closing = True
        self._wake.set()

    def run(self) -> None:
        while not self._closing:
            self._wake.wait(_PASS_S if self._watched else None)
            self._wake.clear()
            for watched in list(self._watched.values()):
                with watched.lock:
                    self._read(watched)

    def _read(self, watched: _Watched, final: bool = False) -> int:
        try:
            size = watched.reading.read(final)
        except Exception:
            # Whatever a script left there must neither end the agent's thread nor delay deliveries.
            log.exception("the event files of %s cannot be read", watched.order.key)
            return 0
        for tool in {reader.source.tool for reader in watched.reading.readers.values()} - watched.noted:
            watched.noted.add(tool)
            text = f"metrics are read from what {SHOWN[tool]} writes (the variable {SWITCH}=0 turns this off)"
            self._services.note(watched.order, "info", text)
        return size


def _reading(order: Order, paths: AttemptPaths) -> Reading:
    try:
        began = paths.launch.stat().st_mtime
    except OSError:
        began = time.time()
    ranks = [rank.rank for rank in order.plan.ranks] if order.plan else []
    return Reading((paths.work, paths.out), paths.streams / "events", min(ranks, default=0), began)
