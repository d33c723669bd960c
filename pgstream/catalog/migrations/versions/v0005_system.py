"""Which databases have copies of the system tables, and what happened to queries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "system_copies",
        sa.Column("database", sa.Text(), sa.ForeignKey("databases.name", ondelete="CASCADE"), primary_key=True),
    )
    op.execute(
        "CREATE TRIGGER log_change AFTER INSERT OR UPDATE OR DELETE ON system_copies"
        " FOR EACH STATEMENT EXECUTE FUNCTION log_change()"
    )
    op.create_table(
        "query_events",
        sa.Column("query", sa.Text(), sa.ForeignKey("queries.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.func.clock_timestamp(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
    )
