"""Random aggregate calls, each in DeltaStream SQL and in PostgreSQL's.

Where order matters PostgreSQL is told it: our functions take rows in the order of their place in the topic.
Must not know: GROUP BY, OVER. Start reading at ``aggregate``.
"""

from __future__ import annotations

import random

from tests.stream.differential.expressions import E, Expressions

ORDER = "__partition, __offset"


def aggregate(r: random.Random, rows: Expressions, ordered: bool, distinct: bool = True, order: str = ORDER) -> E:
    """A call of an aggregate over rows. ``ordered``: they have a place, by which PostgreSQL puts them in ``order``."""
    types = {c.type for c in rows.columns}
    choices = ["count(*)", "count", "count", "extreme", "extreme"]
    choices += ["sum", "sum", "avg"] * ("int" in types) + ["dec"] * ("dec" in types) + ["dbl", "var"] * ("dbl" in types)
    choices += ["big"] * ("big" in types)
    choices += ["distinct", "distinct"] * distinct + ["list", "first", "array"] * ordered
    where, where_pg = "", ""
    choice = r.choice(choices)
    if choice not in ("list", "first", "array") and r.random() < 0.2:
        c = rows.condition()
        where, where_pg = f" FILTER (WHERE {c.ours})", f" FILTER (WHERE {c.pg})"

    def call(word: str, e: E, type_: str, pg: str = "{}") -> E:
        return E(f"{word}({e.ours}){where}", pg.format(f"{word}({e.pg}){where_pg}"), type_)

    match choice:
        case "count(*)":
            return E(f"COUNT(*){where}", f"count(*){where_pg}", "int")
        case "count":
            return call("COUNT", rows.any(), "int")
        case "extreme":
            kinds = [t for t in ("int", "str", "dbl", "dec", "ts", "tz", "big") if t in types]
            e, word = rows.of(r.choice(kinds or ["int"])), r.choice(["MIN", "MAX"])
            text = ' COLLATE "C"' if e.type == "str" else ""
            return E(f"{word}({e.ours}){where}", f"{word}({e.pg}{text}){where_pg}", e.type)
        case "sum":
            return call("SUM", rows.of("int"), "int")
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
                return E(f"SUM(DISTINCT {e.ours}){where}", f"sum(DISTINCT {e.pg}){where_pg}", "int")
            e = rows.any()
            return E(f"COUNT(DISTINCT {e.ours}){where}", f"count(DISTINCT {e.pg}){where_pg}", "int")
        case "list":
            e, s = rows.of("str"), r.choice(["|", ", "])
            return E(f"LISTAGG({e.ours}, '{s}')", f"string_agg({e.pg}, '{s}' ORDER BY {order})", "str")
        case "first":
            e, (word, way) = rows.any(2), r.choice([("FIRST_VALUE", "ASC"), ("LAST_VALUE", "DESC")])
            by = "ORDER BY " + ", ".join(f"{place} {way}" for place in order.split(", "))
            return E(f"{word}({e.ours})", f"(array_agg({e.pg} {by}) FILTER (WHERE {e.pg} IS NOT NULL))[1]", e.type)
        case _:
            e = rows.of("int")
            array = E(f"ARRAY_AGG({e.ours})", f"array_agg({e.pg} ORDER BY {order})", "ints")
            return (
                array
                if order != ORDER
                else r.choice([array, E(f"CARDINALITY({array.ours})", f"cardinality({array.pg})", "int")])
            )
