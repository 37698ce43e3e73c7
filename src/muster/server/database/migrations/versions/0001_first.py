"""The first databases; new ones get the tables of today at once, so that nothing leads here."""

revision = "0001"
down_revision = None
