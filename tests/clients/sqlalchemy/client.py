"""SQLAlchemy 2 over psycopg, asyncpg and pg8000: Core, the ORM on a table and on a view, reflection, savepoints."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import sys
from collections.abc import Callable
from decimal import Decimal

from sqlalchemy import (
    Column,
    ForeignKey,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    exc,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, INTEGER, JSONB, insert
from sqlalchemy.engine import URL, Engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

e = os.environ


def url(driver: str) -> URL:
    return URL.create(
        f"postgresql+{driver}", e["PGUSER"], e["PGPASSWORD"], e["PGHOST"], int(e["PGPORT"]), e["PGDATABASE"]
    )


def say(name: str, *values: object) -> None:
    sys.stdout.write(f"{name}: {' | '.join(str(v) for v in values)}\n")


def failing(do: Callable[[], object]) -> str:
    try:
        do()
    except exc.DBAPIError as error:
        return f"{type(error).__name__} {str(error.orig).splitlines()[0]}"
    raise AssertionError("no error")


class Base(DeclarativeBase):
    pass


class Author(Base):
    """An author."""

    __tablename__ = "of_sqlalchemy_authors"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(30), unique=True, comment="who")
    tags: Mapped[list[int]] = mapped_column(ARRAY(INTEGER), server_default="{}")
    detail: Mapped[dict[str, object]] = mapped_column(JSONB, default=dict)
    books: Mapped[list[Book]] = relationship(back_populates="author", order_by="Book.title")


class Book(Base):
    """A book."""

    __tablename__ = "of_sqlalchemy_books"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    price: Mapped[Decimal | None]
    published: Mapped[dt.date | None] = mapped_column(index=True)
    author_id: Mapped[int] = mapped_column(ForeignKey("of_sqlalchemy_authors.id", ondelete="CASCADE"))
    author: Mapped[Author] = relationship(back_populates="books")


def core(engine: Engine) -> None:
    with engine.connect() as c:
        say("session", *c.execute(select(func.current_user(), func.current_database())).one())
        say("server", c.dialect.server_version_info[0], c.dialect.default_schema_name, c.get_isolation_level())
        say("streamed", sum(c.execution_options(stream_results=True, max_row_buffer=10).scalars(text(
            "SELECT n FROM generate_series(1, 1000) n"))))  # fmt: skip
        say("error", failing(lambda: c.execute(text("SELECT 1 / :n"), {"n": 0})))
    with engine.connect().execution_options(isolation_level="SERIALIZABLE") as c:
        say("isolation", c.scalar(text("SHOW transaction_isolation")))


def orm(engine: Engine) -> None:
    with Session(engine) as s:
        books = [Book(title=f"b{n}", price=Decimal("9.99") * n, published=dt.date(2024, 1, n)) for n in (1, 2)]
        s.add_all([Author(name="zö", tags=[1, 2], detail={"a": [1, None]}, books=books), Author(name="none")])
        s.commit()
        author = s.scalars(select(Author).where(Author.tags.contains([2]))).one()
        say("author", author.name, author.tags, author.detail, [(b.title, b.price, b.published) for b in author.books])
        try:
            with s.begin_nested():
                s.add(Author(name="none"))
                s.flush()
        except exc.IntegrityError as error:
            say("savepoint", type(error.orig).__name__)
        upsert = insert(Author).values(name="none", tags=[7]).on_conflict_do_update(
            index_elements=[Author.name], set_={"tags": [7]}
        )  # fmt: skip
        s.execute(upsert)
        query = select(Author.name, func.count(Book.id)).outerjoin(Author.books).group_by(Author.name).order_by("name")
        say("joined", s.execute(query).all())
        s.delete(author.books[0])
        s.rollback()
        s.bulk_save_objects([Book(title=f"bulk{n}", author_id=author.id) for n in range(500)])
        say("bulk", s.scalar(select(func.count()).select_from(Book)))
        s.commit()


def reflection(engine: Engine, *names: str) -> None:
    seen = inspect(engine)
    for name in names:
        columns = seen.get_columns(name)
        say(name, [(c["name"], str(c["type"]), c["nullable"], c["default"], c["comment"]) for c in columns])
        say(
            "keys",
            seen.get_pk_constraint(name)["constrained_columns"],
            seen.get_unique_constraints(name),
            seen.get_indexes(name),
        )
        say(
            "foreign keys",
            [(k["constrained_columns"], k["referred_table"], k["options"]) for k in seen.get_foreign_keys(name)],
        )
    say(
        "listed",
        sorted(n for n in seen.get_table_names() if n in names),
        [n for n in seen.get_view_names() if n in names],
    )
    table = Table(names[-1], MetaData(), autoload_with=engine)
    say("reflected", [f"{c.name} {c.type}" for c in table.columns])


async def asynchronous() -> None:
    engine = create_async_engine(url("asyncpg"))
    async with engine.connect() as c:
        rows = await c.stream(text("SELECT n FROM generate_series(1, 3) n"))
        say("async", [n async for (n,) in rows])
    await engine.dispose()


def ours(driver: str) -> None:
    engine = create_engine(url(driver), isolation_level="AUTOCOMMIT")
    with engine.connect() as c:
        stores = c.execute(text("LIST STORES")).mappings()
        say("stores", [(r["Name"], r["Type"]) for r in stores if r["Name"] == "of_languages"])
        c.execute(text("CREATE STREAM of_sqlalchemy (n BIGINT, userid VARCHAR) "
                       "WITH ('store' = of_languages, 'topic' = 'of_languages', 'value.format' = 'json')"))  # fmt: skip
        rows = "SELECT n, userid FROM of_sqlalchemy WITH ('starting.position' = 'earliest') WHERE userid <> :u LIMIT 2"
        say("rows", c.execute(text(rows), {"u": "b"}).all())
        reflection(engine, "of_sqlalchemy")
        c.execute(text("DROP STREAM of_sqlalchemy"))
        say("missing", failing(lambda: c.execute(text("DROP STORE nope"))))
    reflection(engine, "of_languages_counts")
    _orm_on_a_view(engine)


def _orm_on_a_view(engine: Engine) -> None:
    class Views(DeclarativeBase):
        pass

    class Counts(Views):
        __table__ = Table(
            "of_languages_counts", Views.metadata, Column("userid", String, primary_key=True), autoload_with=engine
        )

    with Session(engine) as s:
        say("view", [(c.userid, c.n) for c in s.scalars(select(Counts).order_by(Counts.userid))])
        say("one", s.get(Counts, "a").n, s.scalar(select(func.sum(Counts.n)).where(Counts.n > 0)))


def main() -> None:
    for driver in ("psycopg", "pg8000"):
        engine = create_engine(url(driver))
        said: list[str] = []
        event.listen(engine, "begin", lambda _c, to=said: to.append("BEGIN"))
        say("driver", driver)
        Base.metadata.create_all(engine)
        try:
            core(engine)
            orm(engine)
            reflection(engine, Author.__tablename__, Book.__tablename__)
        finally:
            Base.metadata.drop_all(engine)
        say("transactions", len(said))
        engine.dispose()
    asyncio.run(asynchronous())
    if e["TARGET"] == "pgstream":
        sys.stdout.write("== pgstream\n")
        for driver in ("psycopg", "psycopg2"):
            ours(driver)


if __name__ == "__main__":
    main()
