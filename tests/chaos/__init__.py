"""Seeded faults: gangs on every engine, and what became of them compared with a record kept outside Muster."""
