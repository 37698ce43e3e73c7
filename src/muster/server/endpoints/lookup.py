"""Endpoints of either kind by name: found, or refused with the known names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Table, select

from muster import errors
from muster.control.access import Action, Caller, require
from muster.server.database import tables

_LISTED = 20


@dataclass(frozen=True)
class Kind:
    """Online or batch endpoints."""

    noun: str
    command: str
    endpoints: Table
    deployments_table: Table

    def refuse_taken(self, connection: Connection, name: str) -> None:
        """Refuse to create an endpoint whose name is taken."""
        if connection.execute(select(self.endpoints.c.name).where(self.endpoints.c.name == name)).first() is not None:
            raise errors.Conflict(
                f"there is {self.article} {self.noun} {name} already", f"`muster {self.command} show {name}` shows it."
            )

    def find(self, connection: Connection, name: str) -> Row[Any]:
        """An endpoint's row, or a refusal that names the known ones."""
        column = self.endpoints.c.name
        row = connection.execute(select(self.endpoints).where(column == name)).first()
        if row is None:
            known = connection.execute(select(column).order_by(column).limit(_LISTED)).scalars().all()
            listed = f"There are: {', '.join(known)}." if known else f"`muster {self.command} create {name}` makes one."
            raise errors.NotFound(f"there is no {self.noun} {name!r}", listed)
        return row

    def owned(self, connection: Connection, name: str, caller: Caller) -> Row[Any]:
        """The same, for a caller that may change it."""
        row = self.find(connection, name)
        require(caller, Action.MANAGE_ENDPOINT, row.created_by, f"the {self.noun} {name}")
        return row

    def deployments(self, connection: Connection, endpoint: str) -> dict[str, Row[Any]]:
        """An endpoint's deployments by name."""
        table = self.deployments_table
        query = select(table).where(table.c.endpoint == endpoint).order_by(table.c.name)
        return {row.name: row for row in connection.execute(query)}

    def find_deployment(self, connection: Connection, endpoint: str, name: str) -> Row[Any]:
        known = self.deployments(connection, endpoint)
        if name not in known:
            raise errors.NotFound(
                f"the {self.noun} {endpoint} has no deployment {name!r}", f"It has: {', '.join(known) or 'none'}."
            )
        return known[name]

    @property
    def article(self) -> str:
        return "an" if self.noun[0] in "aeiou" else "a"


ONLINE = Kind("endpoint", "endpoint", tables.endpoints, tables.deployments)
BATCH = Kind("batch endpoint", "batch-endpoint", tables.batch_endpoints, tables.batch_deployments)


def merged_tags(row: Row[Any], changes: Mapping[str, str | None] | None) -> dict[str, str]:
    """An endpoint's tags with these changes; a null value removes a tag."""
    return {key: value for key, value in {**row.tags, **(changes or {})}.items() if value is not None}
