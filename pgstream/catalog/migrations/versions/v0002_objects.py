"""Objects that are nothing but a row (registries, secrets, pools, users, …), their secrets; users' defaults."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def _text(name: str, key: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False, primary_key=key)


def _moment(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False)


def upgrade() -> None:
    op.create_table(
        "objects",
        _text("id", key=True),
        _text("organization"),
        _text("kind"),
        _text("name"),
        _text("type"),
        sa.Column("options", sa.JSON(), nullable=False),
        _text("owner"),
        _text("state"),
        _text("message"),
        _text("created_by"),
        _moment("created_at"),
        _moment("updated_at"),
        sa.UniqueConstraint("organization", "kind", "name"),
    )
    op.create_table(
        "object_secrets",
        sa.Column("object_id", sa.Text(), sa.ForeignKey("objects.id", ondelete="CASCADE"), primary_key=True),
        _text("name", key=True),
        sa.Column("value", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "defaults", _text("user", key=True), _text("organization", key=True), _text("kind", key=True), _text("value")
    )
    op.add_column("queries", sa.Column("pool", sa.Text(), server_default="default", nullable=False))
