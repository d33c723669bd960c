"""Random aggregate calls, each in DeltaStream SQL and in PostgreSQL's.

Where order matters PostgreSQL is told it: our functions take rows in the order of their place in the topic.
Must not know: GROUP BY, OVER. Start reading at ``aggregate``.
"""

from __future__ import annotations

import random

from tests.stream.differential.expressions import E, Expressions

PLACE = "__partition, __offset"


def aggregate(r: random.Random, rows: Expressions, order: str = "", distinct: bool = True, nested: bool = False) -> E:
    """A call of an aggregate over rows. ``order``: what PostgreSQL puts them in where order matters, none if they have
    none; in that of their times, equal ones stand by their values. ``nested``: the result may be looked into.
    """
    types = {c.type for c in rows.columns}
    choices = ["count(*)", "count", "count", "extreme", "extreme"]
    choices += ["sum", "sum", "avg"] * ("int" in types) + ["dec"] * ("dec" in types) + ["dbl", "var"] * ("dbl" in types)
    choices += ["big"] * ("big" in types)
    choices += ["distinct", "distinct"] * distinct + ["list", "first", "array"] * bool(order)
    where, where_pg = "", ""
    choice = r.choice(choices)
    if choice not in ("list", "first", "array") and r.random() < 0.2:
        c = rows.condition()
        where, where_pg = f" FILTER (WHERE {c.ours})", f" FILTER (WHERE {c.pg})"

    def call(word: str, e: E, type_: str, pg: str = "{}") -> E:
        return E(f"{word}({e.ours}){where}", pg.format(f"{word}({e.pg}){where_pg}"), type_)

    def by(e: E) -> list[str]:
        text = ' COLLATE "C"' if e.type == "str" else ""
        return order.split(", ") if PLACE in order else [order, f"({e.pg}){text}"]

    match choice:
        case "count(*)":
            return E(f"COUNT(*){where}", f"count(*){where_pg}", "int")
        case "count":
            return call("COUNT", rows.any(), "int")
        case "extreme" if r.random() < 0.2:
            e, word = rows.of("bool"), r.choice(["BOOL_AND", "BOOL_OR", "EVERY"])
            return E(f"{word}({e.ours}){where}", f"{word}({e.pg}){where_pg}", "bool")
        case "extreme":
            kinds = [t for t in ("int", "str", "dbl", "dec", "ts", "tz", "big") if t in types]
            e, word = rows.of(r.choice(kinds or ["int"])), r.choice(["MIN", "MAX"])
            text = ' COLLATE "C"' if e.type == "str" else ""
            return E(f"{word}({e.ours}){where}", f"{word}({e.pg}{text}){where_pg}", e.type)
        case "sum":
            return call("SUM", rows.of("int"), "int", "({})::bigint")
        case "avg":
            return call("AVG", rows.of("int"), "int", "trunc({})::bigint")
        case "dec":
            return call(r.choice(["SUM", "AVG"]), rows.of("dec", 2), "dec")
        case "big":
            return call("SUM", r.choice([c.e for c in rows.columns if c.type == "big"]), "big")
        case "dbl":
            own = r.choice([c.e for c in rows.columns if c.type == "dbl"])
            return call(r.choice(["SUM", "AVG"]), own, "dbl")
        case "var":
            own = r.choice([c.e for c in rows.columns if c.type == "dbl"])
            return call(r.choice(["STDDEV", "STDDEV_POP", "VAR_SAMP", "VAR_POP"]), own, "dbl")
        case "distinct":
            if r.random() < 0.3:
                e = rows.of("int")
                return E(f"SUM(DISTINCT {e.ours}){where}", f"(sum(DISTINCT {e.pg}){where_pg})::bigint", "int")
            e = rows.any()
            return E(f"COUNT(DISTINCT {e.ours}){where}", f"count(DISTINCT {e.pg}){where_pg}", "int")
        case "list":
            e, s = rows.of("str"), r.choice(["|", ", "])
            return E(
                f"{r.choice(['LISTAGG', 'STRING_AGG'])}({e.ours}, '{s}')",
                f"string_agg({e.pg}, '{s}' ORDER BY {', '.join(by(e))})",
                "str",
            )
        case "first":
            e, (word, way) = rows.any(2), r.choice([("FIRST_VALUE", "ASC"), ("LAST_VALUE", "DESC")])
            way = "ORDER BY " + ", ".join(f"{place} {way}" for place in by(e))
            return E(f"{word}({e.ours})", f"(array_agg({e.pg} {way}) FILTER (WHERE {e.pg} IS NOT NULL))[1]", e.type)
        case _:
            e = rows.of("int")
            first = [] if PLACE in order else [f"({e.pg}) IS NOT NULL"]
            places = ", ".join([*by(e)[:1], *first, *by(e)[1:]])
            array = E(f"ARRAY_AGG({e.ours})", f"array_agg({e.pg} ORDER BY {places})", "ints")
            size = E(f"CARDINALITY({array.ours})", f"cardinality({array.pg})", "int")
            return r.choice([array, size]) if nested else array
