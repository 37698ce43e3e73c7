"""Translates errors of databases for people."""

from __future__ import annotations

from sqlalchemy.exc import DatabaseError, DBAPIError, OperationalError

from muster import errors

_FULL = ("database or disk is full", "no space left on device", "could not extend file")
_DAMAGED = ("malformed", "file is not a database", "invalid page", "unsupported file format")

REPAIR = "`muster repair` rebuilds it from the last automatic backup and the store; the damaged one is kept."


def is_full(error: BaseException) -> bool:
    """Whether a write failed because its disk is full."""
    return isinstance(error, DBAPIError) and any(word in str(error.orig).lower() for word in _FULL)


def is_damaged(error: BaseException) -> bool:
    """Whether the database's files are damaged."""
    return isinstance(error, DatabaseError) and any(word in str(error.orig).lower() for word in _DAMAGED)


def is_away(error: BaseException) -> bool:
    """Whether a database server does not answer, or has ended the connection; it may come back."""
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    # Errors of SQLite have no such state, and a connection that was never made has none.
    state = getattr(error.orig, "sqlstate", "")
    return isinstance(error, OperationalError) and (state is None or state.startswith(("08", "57P")))


def explained(error: Exception) -> Exception:
    """The error with advice where there is any; others unchanged."""
    if is_full(error):
        return disk_full("the disk of the workspace's database is full")
    if is_away(error):
        assert isinstance(error, DBAPIError)
        reason = str(error.orig).strip().splitlines()[0]
        return errors.ServerUnavailable(
            f"the workspace's database does not answer: {reason}",
            "Start it, or see that this machine reaches it; what was under way goes on once it answers.",
        )
    if is_damaged(error):
        assert isinstance(error, DBAPIError)
        return errors.MusterError(
            f"the workspace database is damaged: {error.orig}",
            f"End the server (`muster down --force`). {REPAIR}",
            code="damaged_database",
        )
    return error


def disk_full(message: str) -> errors.DiskFull:
    """An error with advice on how to free space."""
    return errors.DiskFull(
        message, "Free some space: `muster rm RUN` removes a run with its files, `muster gc` what nothing refers to."
    )
