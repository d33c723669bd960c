"""Who made an object and who changed it last, and the roles they did it in. The transaction says who works in it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_SIGN = """
CREATE FUNCTION sign_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    author text := nullif(current_setting('pgstream.user', true), '');
BEGIN
    IF author IS NOT NULL THEN
        IF TG_OP = 'INSERT' THEN
            NEW.created_by := coalesce(nullif(NEW.created_by, ''), author);
            NEW.created_by_role := current_setting('pgstream.role');
        END IF;
        NEW.updated_by := author;
        NEW.updated_by_role := current_setting('pgstream.role');
    END IF;
    RETURN NEW;
END $$"""
_TABLES = ("databases", "schemas", "stores", "relations", "queries", "objects")
_COLUMNS = ("created_by", "created_by_role", "updated_by", "updated_by_role")


def upgrade() -> None:
    op.execute(_SIGN)
    for table in _TABLES:
        for column in _COLUMNS:
            if (table, column) != ("objects", "created_by"):
                op.add_column(table, sa.Column(column, sa.Text(), nullable=True))
        op.execute(
            f"CREATE TRIGGER sign_change BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION sign_change()"
        )
