"""Runs the migrations on the connection that app.store hands over."""

from alembic import context

from app.models import Table

context.configure(connection=context.config.attributes["connection"], target_metadata=Table.metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
