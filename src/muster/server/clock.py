"""The machine's clock was set: times of open records are shifted with it, so that waits and durations stay right."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from sqlalchemy import update

from muster.defaults import CLOCK_JUMP_S
from muster.host.clock import CLOCK
from muster.host.files import read_json, write_json
from muster.server.database import tables
from muster.server.database.connection import Transaction
from muster.server.queue.estimates import move_forecasts
from muster.server.queue.passed import move_passed
from muster.wire import states

log = logging.getLogger("muster.server")

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def was_set() -> bool:
    """Whether the machine's clock has jumped."""
    return abs(CLOCK.jump_s()) > CLOCK_JUMP_S


def follow(transaction: Transaction) -> None:
    """Adopt the machine's time; no write can come between that and the shifted times."""
    jump_s = CLOCK.jump_s()
    shift(transaction, jump_s)
    transaction.after_commit.append(lambda: CLOCK.adopt(jump_s))


def shift(transaction: Transaction, jump_s: float) -> None:
    """Shift the times of records that have not ended."""
    log.warning("the clock of this machine was set by %+.1f s: times of open records are shifted with it", jump_s)
    runs, attempts, nodes, deliveries = tables.runs, tables.attempts, tables.node_states, tables.deliveries
    open_runs = runs.c.status.not_in(states.TERMINAL)
    for table, where, columns in (
        (runs, open_runs, ("created_at", "queued_at", "started_at", "retry_at")),
        (attempts, attempts.c.ended_at.is_(None), ("created_at", "granted_at", "started_at")),
        (nodes, nodes.c.since > 0.0, ("since",)),
        (deliveries, deliveries.c.due_at.is_not(None), ("created_at", "due_at")),
    ):
        moved = {name: table.c[name] + jump_s for name in columns}
        transaction.execute(update(table).where(where).values(moved))
    move_passed(transaction, jump_s)
    move_forecasts(transaction, jump_s)


class ClockFile:
    """The last server's clock, so that a jump between two servers is noticed too."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def jump_s(self) -> float:
        """By how much the clock was set since the last server of this boot; 0 where that is unknown."""
        known = read_json(self._path)
        if not isinstance(known, dict) or known.get("boot") != _boot() or "offset_s" not in known:
            return 0.0
        jump_s = CLOCK.offset_s - float(known["offset_s"])
        return jump_s if abs(jump_s) > CLOCK_JUMP_S else 0.0

    def keep(self) -> None:
        with suppress(OSError):
            write_json(self._path, {"boot": _boot(), "offset_s": CLOCK.offset_s})


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
