"""When tokens were used; what earlier versions kept of a token nobody could log in with goes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "token_uses",
        sa.Column("login", sa.Text(), nullable=False, primary_key=True),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.execute("DELETE FROM objects WHERE kind = 'api_token'")
