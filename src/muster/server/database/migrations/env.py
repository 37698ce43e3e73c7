"""Alembic's entry: migrations run on the engine that the server already holds."""

from alembic import context

with context.config.attributes["engine"].begin() as connection:
    context.configure(connection=connection, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()
