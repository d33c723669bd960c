"""The first tables: stores, databases, schemas, relations, queries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _moment(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False)


def _text(name: str, null: bool = False, key: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=null, primary_key=key)


def _json(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.JSON(), nullable=False)


def upgrade() -> None:
    op.create_table("meta", _text("key", key=True), _text("value"))
    op.create_table("databases", _text("name", key=True), _text("owner"), _moment("created_at"))
    op.create_table(
        "schemas",
        sa.Column("database", sa.Text(), sa.ForeignKey("databases.name", ondelete="CASCADE"), primary_key=True),
        _text("name", key=True),
        _text("owner"),
        _moment("created_at"),
    )
    op.create_table(
        "stores",
        _text("id", key=True),
        sa.Column("name", sa.Text(), nullable=False, unique=True),
        _text("type"),
        _json("options"),
        _text("owner"),
        _text("state"),
        _text("message"),
        _moment("created_at"),
        _moment("updated_at"),
    )
    op.create_table(
        "store_secrets",
        sa.Column("store_id", sa.Text(), sa.ForeignKey("stores.id", ondelete="CASCADE"), primary_key=True),
        _text("name", key=True),
        sa.Column("value", sa.LargeBinary(), nullable=False),
    )
    _relations()
    _queries()


def _relations() -> None:
    op.create_table(
        "relations",
        _text("id", key=True),
        _text("database"),
        _text("schema"),
        _text("name"),
        _text("kind"),
        _json("columns"),
        _text("owner"),
        _json("primary_key"),
        sa.Column("store", sa.Text(), sa.ForeignKey("stores.name"), nullable=True),
        _text("entity", null=True),
        _json("properties"),
        _text("query", null=True),
        _text("description", null=True),
        _text("state"),
        _text("mode"),
        _moment("created_at"),
        _moment("updated_at"),
        sa.UniqueConstraint("database", "schema", "name"),
        sa.ForeignKeyConstraint(["database", "schema"], ["schemas.database", "schemas.name"]),
    )


def _queries() -> None:
    op.create_table(
        "queries",
        _text("id", key=True),
        _text("name", null=True),
        sa.Column("version", sa.Integer(), nullable=False),
        _text("kind"),
        _text("sql"),
        sa.Column("plan", sa.LargeBinary(), nullable=False),
        _text("owner"),
        _text("database"),
        _json("sources"),
        _text("sink"),
        _json("stores"),
        _text("intended"),
        sa.Column("actual", sa.Text(), nullable=False, index=True),
        _text("message"),
        sa.Column("attempt", sa.Integer(), nullable=False),
        _json("settings"),
        _json("progress"),
        _moment("created_at"),
        _moment("updated_at"),
        sa.UniqueConstraint("name", "version"),
    )
