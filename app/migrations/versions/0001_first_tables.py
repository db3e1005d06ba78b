"""Runs, events, jobs and workers."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("content_key", sa.String(64), unique=True),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("compiler", sa.String(40), nullable=False),
        sa.Column("target", sa.String(40), nullable=False),
        sa.Column("options", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("last_seq", sa.Integer, nullable=False, server_default="0"),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("finished_at", sa.Float),
    )
    op.create_table(
        "events",
        sa.Column("run_id", sa.String(32), sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("region", sa.BigInteger),
        sa.Column("stage", sa.String(40)),
        sa.Column("part", sa.String(16)),
        sa.Column("status", sa.String(16)),
        sa.Column("millis", sa.Float),
        sa.Column("json", sa.Text, nullable=False),
    )
    op.create_index("events_by_stage", "events", ["run_id", "stage", "region", "part"])
    op.create_table(
        "jobs",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.String(32), sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False, unique=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("worker", sa.String(200)),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("heartbeat", sa.Float),
    )
    op.create_index("ix_jobs_state", "jobs", ["state"])
    op.create_table(
        "workers",
        sa.Column("id", sa.String(200), primary_key=True),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("level", sa.String(40), nullable=False),
        sa.Column("last_seen", sa.Float, nullable=False),
    )


def downgrade() -> None:
    for table in ("workers", "jobs", "events", "runs"):
        op.drop_table(table)
