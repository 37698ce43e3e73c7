"""What all tables of the workspace database are made in."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer, MetaData

metadata = MetaData()

# SQLite numbers rows by itself only in a column of exactly this type.
RowId = BigInteger().with_variant(Integer, "sqlite")
