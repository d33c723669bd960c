"""Django: a schema made from models, CRUD, transactions, introspection and inspectdb."""

from __future__ import annotations

import datetime as dt
import io
import os
import sys
from decimal import Decimal

import django
from django.conf import settings

e = os.environ
settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": e["PGHOST"],
            "PORT": e["PGPORT"],
            "USER": e["PGUSER"],
            "PASSWORD": e["PGPASSWORD"],
            "NAME": e["PGDATABASE"],
        }
    },
    INSTALLED_APPS=["__main__"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
)
django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import DatabaseError, IntegrityError, connection, models, transaction  # noqa: E402
from django.db.models import Count, F, Q, Sum  # noqa: E402


class Author(models.Model):
    """An author."""

    name = models.CharField(max_length=30, unique=True)
    detail = models.JSONField(default=dict)

    class Meta:
        db_table = "of_django_authors"
        db_table_comment = "who writes"


class Book(models.Model):
    """A book."""

    author = models.ForeignKey(Author, models.CASCADE, related_name="books")
    title = models.TextField(db_index=True)
    price = models.DecimalField(max_digits=8, decimal_places=2, null=True)
    sold = models.IntegerField(default=0)
    at = models.DateTimeField(null=True)

    class Meta:
        db_table = "of_django_books"


def say(name: str, *values: object) -> None:
    sys.stdout.write(f"{name}: {' | '.join(str(v) for v in values)}\n")


def crud() -> None:
    at = dt.datetime(2024, 1, 2, 3, 4, 5, 678000, dt.UTC)
    author = Author.objects.create(name="zö", detail={"a": [1, None]})
    Book.objects.bulk_create([Book(author=author, title=f"b{n}", price=Decimal(n), at=at) for n in range(1, 4)])
    say("read", *Book.objects.filter(title="b2").values_list("title", "price", "at", "author__name", "sold")[0])
    say("updated", Book.objects.filter(Q(price__gt=1) | Q(title="b1")).update(sold=F("sold") + 2))
    say("counted", *Author.objects.annotate(n=Count("books"), sold=Sum("books__sold")).values_list("name", "n", "sold"))
    say("json", Author.objects.filter(detail__a__0=1).exists(), Author.objects.get_or_create(name="zö")[1])
    made, new = Author.objects.update_or_create(name="other", defaults={"detail": {"b": 1}})
    say("made", made.name, new, Author.objects.in_bulk(["other"], field_name="name")["other"].detail)
    say("iterated", sum(b.sold for b in Book.objects.iterator(chunk_size=2)))
    say("deleted", author.delete())


def transactions() -> None:
    with transaction.atomic():
        Author.objects.create(name="kept")
        try:
            with transaction.atomic():
                Author.objects.create(name="kept")
        except IntegrityError as error:
            say("savepoint", error.__cause__.sqlstate, error.__cause__.diag.constraint_name.split("_")[-1])
        done: list[str] = []
        transaction.on_commit(lambda: done.append("committed"))
        say("locked", Author.objects.select_for_update(nowait=True).get(name="kept").name, done)
    say("after", done, Author.objects.filter(name="kept").count())
    try:
        with transaction.atomic():
            Author.objects.all().delete()
            raise RuntimeError
    except RuntimeError:
        say("rolled back", Author.objects.filter(name="kept").count())


def introspection(*tables: str) -> None:
    with connection.cursor() as cursor:
        seen = connection.introspection
        for table in sorted(seen.get_table_list(cursor), key=lambda t: t.name):  # in the order of PostgreSQL's pages
            if table.name in tables:
                say("table", table.name, table.type, table.comment)
        for table in tables:
            for column in seen.get_table_description(cursor, table):
                say(
                    "column", column.name, seen.get_field_type(column.type_code, column), column.null_ok, column.default
                )
            constraints = seen.get_constraints(cursor, table).values()
            say(
                "constraints",
                *sorted(str([c["columns"], c["primary_key"], c["unique"], c["index"]]) for c in constraints),
            )
            say("relations", seen.get_relations(cursor, table), seen.get_sequences(cursor, table))
    out = io.StringIO()
    call_command("inspectdb", *tables, stdout=out)
    sys.stdout.write(out.getvalue().split("from django.db import models")[1].strip() + "\n")


def ours() -> None:
    with connection.cursor() as cursor:
        cursor.execute("LIST STORES")
        say("stores", *[r[0] for r in cursor.fetchall() if r[0] == "of_languages"])
        cursor.execute("CREATE STREAM of_django (n BIGINT, userid VARCHAR) "
                       "WITH ('store' = of_languages, 'topic' = 'of_languages', 'value.format' = 'json')")  # fmt: skip
        cursor.execute(
            "SELECT n, userid FROM of_django WITH ('starting.position' = 'earliest') WHERE userid <> %s LIMIT 2", ["b"]
        )
        say("rows", cursor.fetchall())
        # Not of the stream: Django learns columns by SELECT … LIMIT 1, which on a stream waits for its next record.
        introspection("of_languages_counts")
        cursor.execute("DROP STREAM of_django")
        try:
            cursor.execute("DROP STORE nope")
        except DatabaseError as error:
            say("missing", type(error).__name__, error.__cause__.sqlstate)

    class Counts(models.Model):
        userid = models.TextField(primary_key=True)
        n = models.BigIntegerField()

        class Meta:
            db_table = "of_languages_counts"
            managed = False

    say("view", *Counts.objects.filter(n__gt=0).order_by("userid").values_list("userid", "n"))


def main() -> None:
    with connection.schema_editor() as editor:
        editor.create_model(Author)
        editor.create_model(Book)
    try:
        crud()
        transactions()
        introspection("of_django_authors", "of_django_books")
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(Book)
            editor.delete_model(Author)
    if e["TARGET"] == "pgstream":
        sys.stdout.write("== pgstream\n")
        ours()


if __name__ == "__main__":
    main()
