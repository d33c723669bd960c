"""A log of which rows of the catalogue changed, so that a server reads those and no others (``catalog.changes``)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_LOG = """
CREATE FUNCTION log_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    old_key text[]; new_key text[];
BEGIN
    IF TG_LEVEL = 'STATEMENT' THEN
        INSERT INTO changes (of, key) VALUES (TG_TABLE_NAME, '{}');
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        old_key := ARRAY(SELECT to_jsonb(OLD) ->> c FROM unnest(TG_ARGV) WITH ORDINALITY a (c, i) ORDER BY i);
        INSERT INTO changes (of, key) VALUES (TG_TABLE_NAME, old_key);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        new_key := ARRAY(SELECT to_jsonb(NEW) ->> c FROM unnest(TG_ARGV) WITH ORDINALITY a (c, i) ORDER BY i);
        IF new_key IS DISTINCT FROM old_key THEN
            INSERT INTO changes (of, key) VALUES (TG_TABLE_NAME, new_key);
        END IF;
    END IF;
    RETURN NULL;
END $$"""
_BY_KEY = {
    "schemas": ("database", "name"),
    "relations": ("database", "schema", "name"),
    "objects": ("organization", "kind", "name"),
    "grants": ("kind", "name"),
}
_WHOLE = ("databases", "stores", "defaults", "memberships")


def upgrade() -> None:
    op.create_table(
        "changes",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), primary_key=True),
        sa.Column(
            "xid", sa.BigInteger(), nullable=False, server_default=sa.text("(pg_current_xact_id()::text)::bigint")
        ),
        sa.Column("of", sa.Text(), nullable=False),
        sa.Column("key", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    )
    op.create_index("ix_changes_xid", "changes", ["xid"])
    op.execute(_LOG)
    for table, key in _BY_KEY.items():
        arguments = ", ".join(f"'{c}'" for c in key)
        op.execute(
            f"CREATE TRIGGER log_change AFTER INSERT OR UPDATE OR DELETE ON {table}"
            f" FOR EACH ROW EXECUTE FUNCTION log_change({arguments})"
        )
    for table in _WHOLE:
        op.execute(
            f"CREATE TRIGGER log_change AFTER INSERT OR UPDATE OR DELETE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION log_change()"
        )
