"""Who was granted which role, which privileges roles have; a mark for ``upgrade.users`` if there were users before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def _text(name: str, key: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False, primary_key=key)


def _moment(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False)


def upgrade() -> None:
    op.create_table(
        "memberships",
        _text("role", key=True),
        _text("member", key=True),
        sa.Column("is_user", sa.Boolean(), nullable=False, primary_key=True),
        _text("grantor"),
        _moment("granted_at"),
    )
    op.create_table(
        "grants",
        _text("role", key=True),
        _text("kind", key=True),
        _text("name", key=True),
        _text("privilege", key=True),
        _text("column", key=True),
        sa.Column("grant_option", sa.Boolean(), nullable=False),
        _text("grantor"),
        _moment("granted_at"),
    )
    op.create_index("grants_object", "grants", ["kind", "name"])
    op.add_column("relations", sa.Column("row_security", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "policies",
        sa.Column("relation", sa.Text(), sa.ForeignKey("relations.id", ondelete="CASCADE"), primary_key=True),
        _text("name", key=True),
        _text("definition"),
    )
    op.execute("INSERT INTO meta SELECT 'inheriting_users', '1' FROM meta WHERE key = 'first_database'")
