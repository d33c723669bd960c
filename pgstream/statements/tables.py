"""CREATE TABLE over a store: the columns of a table that lies in it. LIST TABLES and DESCRIBE TABLE.

Owns: the grammar. What a table's WITH means is the store type's (``declared``); whether the type has tables at all too.
PostgreSQL's CREATE TABLE is told apart by its WITH, whose names are not strings: ``shared.py`` decides.
Must not know: any store type. Manual: "CREATE TABLE".
"""

from __future__ import annotations

from typing import ClassVar

from pgstream.names import Name
from pgstream.sql.columns import ColumnDef
from pgstream.statements.relations import DescribeRelation, DescribeRelationColumns, ListRelations
from pgstream.statements.streams import CreateStream, check_key_columns


class CreateTable(CreateStream):
    """CREATE TABLE [IF NOT EXISTS] table_name
    ( column_name data_type [NOT NULL] [, ...] [, PRIMARY KEY ( column_name [, ...] )] )
    WITH ( 'parameter' = value [, ...] );

    Declare a relation over a table in a store that is not a stream's, to be written by INSERT INTO … SELECT, and looked
    up beside streams: FROM stream [LEFT] JOIN table ON …. A table that is not there is made, with these columns.
    Refused in stores that hold no tables.
    """

    words: ClassVar[tuple[str, ...]] = ("CREATE", "TABLE")
    tag: ClassVar[str] = "CREATE TABLE"
    kind: ClassVar[str] = "table"

    @classmethod
    def _check_primary_key(cls, elements: list[ColumnDef], key: list[Name], at: int) -> None:
        check_key_columns(elements, key)


class ListTables(ListRelations):
    """LIST TABLES [IN SCHEMA [database_name.]schema_name];

    LIST RELATIONS, tables in stores only; psql's ``\\d`` shows PostgreSQL's.
    """

    words: ClassVar[tuple[str, ...]] = ("LIST", "TABLES")
    kind: ClassVar[str | None] = "table"


class DescribeTable(DescribeRelation):
    """DESCRIBE TABLE [[database_name.]schema_name.]table_name;

    DESCRIBE RELATION of a table in a store.
    """

    words: ClassVar[tuple[str, ...]] = ("DESCRIBE", "TABLE")
    kind: ClassVar[str | None] = "table"


class DescribeTableColumns(DescribeRelationColumns):
    """DESCRIBE TABLE COLUMNS [[database_name.]schema_name.]table_name;

    The columns of a table in a store.
    """

    words: ClassVar[tuple[str, ...]] = ("DESCRIBE", "TABLE", "COLUMNS")
    kind: ClassVar[str | None] = "table"
