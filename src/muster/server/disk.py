"""The workspace's disk: whether it is full, and what is refused then."""

from __future__ import annotations

import errno
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select

from muster.server.database import tables
from muster.server.database.connection import Database, Transaction
from muster.server.database.faults import disk_full
from muster.server.database.records import RUN, add_note
from muster.server.database.reserve import Room

_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass
class DiskState:
    """Set by the loop that watches the disk; read by all."""

    full: str = ""
    """What is wrong, for people; empty: there is space."""
    noted: set[str] = field(default_factory=set)
    """Runs that were notified since the disk became full."""
    given_up: set[str] = field(default_factory=set)
    """Cancelled runs whose further output is discarded."""

    def see(self, rooms: Sequence[Room]) -> None:
        """Check the disks of the database and of the store."""
        worst = next((room for room in rooms if room.is_full or (self.full and not room.is_free_again)), None)
        self.full = "" if worst is None else f"the disk of {worst.folder} is full: {_mebibytes(worst.free)} are free"
        if worst is None:
            self.noted.clear()

    def check(self) -> None:
        """Refuse what would take more space."""
        if self.full:
            raise disk_full(self.full)


def is_full_error(error: OSError) -> bool:
    """Whether a write failed because a disk, or a quota, is full."""
    return error.errno in _FULL


def give_up(state: DiskState, database: Database, run_ids: Collection[str], why: str) -> set[str]:
    """Give up the cancelled ones of these runs: their further output is discarded, with one note on each."""
    runs = tables.runs
    mine = (runs.c.id.in_(run_ids), runs.c.cancel.is_not(None))
    found = set(database.read_now(lambda c: c.execute(select(runs.c.id).where(*mine)).scalars().all()))
    if found - state.given_up:
        database.submit(lambda transaction: _note_given_up(transaction, found - state.given_up, why)).result()
        state.given_up |= found
    return found


def _note_given_up(transaction: Transaction, run_ids: Collection[str], why: str) -> None:
    text = f"what it printed and left at its end is not kept in full: {why}"
    for run_id in run_ids:
        row = RUN.first(transaction, run_id)
        if row is not None:
            RUN.set(transaction, run_id, notices=[*row.notices, text])
            add_note(transaction, run_id, "error", text)


def loss(full: str) -> str:
    """The note on a run that was active meanwhile."""
    return f"{full}. What its ranks print or log while that lasts may be missing."


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
