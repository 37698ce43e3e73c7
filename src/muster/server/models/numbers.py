"""Version numbers: each is given only once, even if its version was removed."""

from __future__ import annotations

from sqlalchemy import func, insert, select

from muster import errors
from muster.server.database import tables
from muster.server.database.connection import Transaction

_VERSIONS, _RETIRED = tables.models, tables.retired_models


def number_for(transaction: Transaction, name: str, version: int | None) -> int:
    """The next number of a model, or the requested one if it was never given."""
    used = [(_VERSIONS, "exists, and what exists never changes"), (_RETIRED, "was deleted, and its number stays taken")]
    if version is None:
        query = [select(func.max(table.c.version)).where(table.c.name == name) for table, _ in used]
        return max(transaction.execute(last).scalar() or 0 for last in query) + 1
    for table, why in used:
        mine = table.c.name == name, table.c.version == version
        if transaction.execute(select(table.c.version).where(*mine)).first() is not None:
            raise errors.Conflict(f"the model {name}:{version} {why}", "Leave the version out for the next one.")
    return version


def retire(transaction: Transaction, name: str, version: int | None = None) -> None:
    """Prevent the number of one version, or all numbers of a model, from being given again; before they are removed."""
    mine = (_VERSIONS.c.name == name, *((_VERSIONS.c.version == version,) if version is not None else ()))
    known = select(_RETIRED.c.version).where(_RETIRED.c.name == name)
    query = select(_VERSIONS.c.version).where(*mine, _VERSIONS.c.version.not_in(known))
    if found := transaction.execute(query).scalars().all():
        transaction.execute(insert(_RETIRED), [{"name": name, "version": number} for number in found])
