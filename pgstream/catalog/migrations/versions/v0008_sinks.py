"""Queries that write several relations: applications."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("queries", sa.Column("sinks", sa.JSON(), nullable=True))
    op.execute("UPDATE queries SET sinks = json_build_array(sink)")
    op.alter_column("queries", "sinks", nullable=False)
    op.drop_column("queries", "sink")
