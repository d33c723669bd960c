"""The function table: what a DeltaStream function is in Spark SQL.

Owns: for every function its name, arity, Spark SQL template and result type (where a later step needs it), following
Flink 1.20 where DeltaStream is silent (``semantics.md`` §15 and §28.4). A row's templates are by number of arguments;
``{0}`` is the first argument, ``{*}`` all of them. A type is type text, ``0`` for the first argument's, ``0*`` for the
common one of it and all behind it, or None when only Spark knows it.
Must not know: scopes, sqlglot; a row that needs more than a template names a function of ``calls``.
Start reading at ``FUNCTIONS``. The worker runs with ``spark.sql.ansi.enabled=false`` and session time zone UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

ANY = -1


@dataclass(frozen=True, slots=True)
class Function:
    """One function. ``templates``: Spark SQL by argument count, ``ANY`` for the rest (then ``least`` is the minimum).

    ``aggregate``: it reads a group. ``integral``: over whole numbers its result is cut to the argument's type.
    ``call``: name of a builder in ``calls`` for what a template cannot say. ``units``: positions of arguments that are
    no values: units of time, and the names of relations.
    ``numbers``, ``booleans``: its arguments must be such, as far as their types are known.
    """

    name: str
    templates: dict[int, str]
    type: str | None = None
    aggregate: bool = False
    integral: bool = False
    call: str | None = None
    least: int = 0
    units: tuple[int, ...] = ()
    numbers: bool = False
    booleans: bool = False

    def template(self, count: int) -> str | None:
        """The template for this many arguments; None when it cannot be called so."""
        if count in self.templates:
            return self.templates[count]
        return self.templates.get(ANY) if count >= self.least else None

    @property
    def arity(self) -> str:
        """The argument counts in words, for an error's hint."""
        counts = sorted(c for c in self.templates if c != ANY)
        text = [str(c) for c in counts] + ([f"{self.least} or more"] if ANY in self.templates else [])
        return " or ".join(text)


def _row(names: str, *templates: str, type: str | None = None, first: int = 1, **kw: object) -> list[Function]:
    """Rows of one meaning under several names; templates are for ``first``, ``first`` + 1 … arguments."""
    by_count = {first + i: t for i, t in enumerate(templates)}
    return [Function(n, by_count, type, **kw) for n in names.split()]  # type: ignore[arg-type]


def _all(names: str, template: str, least: int, type: str | None = None, **kw: object) -> list[Function]:
    return [Function(n, {ANY: template}, type, least=least, **kw) for n in names.split()]  # type: ignore[arg-type]


RECORDS = ("rowtime", "rowkey", "rowmetadata")  # the builders of functions of a row's record
ORDERED = ("LISTAGG", "ARRAY_AGG", "FIRST_VALUE", "LAST_VALUE")  # aggregates of values in the order of arrival
ARRIVAL = "`__partition`, `__offset`"
_ORDER = f"struct({ARRIVAL})"
_LISTED = f"collect_list(if({{0}} is null, null, struct({ARRIVAL}, cast({{0}} as string) as v)))"
_LISTAGG = f"if(size({_LISTED}) = 0, null, array_join(transform(array_sort({_LISTED}), e -> e.v), {{1}}))"
_GATHERED = f"collect_list(struct({ARRIVAL}, {{0}} as v))"
_KEPT = f"collect_list(if({{1}}, struct({ARRIVAL}, {{0}} as v), null))"
FILTERED_ARRAY = f"if(size({_KEPT}) = 0, null, transform(array_sort({_KEPT}), e -> e.v))"  # ARRAY_AGG where {1}
_JSON = "get_json_object({0}, {1})"
_JSON_NESTED = f"left({_JSON}, 1) in ('{{{{', '[')"
_JSON_KIND = "schema_of_variant(try_variant_get(try_parse_json({0}), {1}, 'variant'))"
_JSON_TEXT = "to_json(try_variant_get(try_parse_json({0}), {1}, 'variant'))"
_JSON_WRAPPED = (
    f"case when {_JSON_TEXT} is null or {_JSON_TEXT} = 'null' then null"
    f" when {{2}} = 'CONDITIONAL' and left({_JSON_TEXT}, 1) = '[' then {_JSON} else concat('[',"
    f" if(left({_JSON_TEXT}, 1) in ('{{{{', '['), {_JSON}, {_JSON_TEXT}), ']') end"
)
_KIND = "left(schema_of_variant(try_parse_json({0})), 5)"
_IS_JSON = (
    f"coalesce(case {{1}} when 'OBJECT' then {_KIND} = 'OBJEC' when 'ARRAY' then {_KIND} = 'ARRAY'"
    f" when 'SCALAR' then {_KIND} not in ('OBJEC', 'ARRAY') else {_KIND} is not null end, false)"
)
_LONGEST = 1 << 20  # characters that a function makes of a few: they have to find room where other queries run


def _bounded(length: str, value: str) -> str:
    return f"if({length} > {_LONGEST}, raise_error('54000 requested length too large'), {value})"


WITHOUT_NULLS = "filter({0}, e -> e is not null)"
HAS_NULL = "exists({0}, e -> e is null)"
_UNEVEN = "raise_error('22023 MAP_FROM_ARRAYS needs as many values as keys')"


def _even(template: str) -> str:
    return f"if({{0}} is null or {{1}} is null, null, if(size({{0}}) <> size({{1}}), {_UNEVEN}, {template}))"


def _has(template: str) -> str:
    return f"if({{0}} is null, null, if({{1}} is null, {HAS_NULL}, {template}))"


def _slice(start: str, end: str) -> str:
    """Elements from a place to another, both counted from the end where they are negative; 0 is the first."""
    first = f"greatest(1, if({start} < 0, {start} + size({{0}}) + 1, {start}))"
    last = f"if({end} < 0, {end} + size({{0}}) + 1, greatest(1, {end}))"
    length = f"greatest(0, least(size({{0}}), {last}) - {first} + 1)"
    return f"if({start} is null or {end} is null, null, slice({{0}}, {first}, {length}))"


_NO_FIELD = "raise_error('22023 field position must not be zero')"
_QUOTED_SPLIT = "split({0}, concat('\\\\Q', {1}, '\\\\E'))"
_WORDS = r"[\\p{{L}}\\p{{M}}\\p{{N}}]+|[^\\p{{L}}\\p{{M}}\\p{{N}}]+"  # and what stands between words
_AS_IT_IS = r"replace(replace({2}, '\\', '\\\\'), '$', '\\$')"  # a replacement in which $ and \ are characters

_AGGREGATES = [
    *_row("COUNT", "count({0})", type="BIGINT", aggregate=True),
    *_row("SUM", "sum({0})", aggregate=True, call="sum", numbers=True),
    *_row("AVG", "avg({0})", aggregate=True, integral=True, type="DOUBLE", numbers=True),
    *_row("MIN", "min({0})", type="0", aggregate=True),
    *_row("MAX", "max({0})", type="0", aggregate=True),
    *_row("STDDEV STDDEV_SAMP", "stddev_samp({0})", type="DOUBLE", aggregate=True, integral=True, numbers=True),
    *_row("STDDEV_POP", "stddev_pop({0})", type="DOUBLE", aggregate=True, integral=True, numbers=True),
    *_row("VARIANCE VAR_SAMP", "var_samp({0})", type="DOUBLE", aggregate=True, integral=True, numbers=True),
    *_row("VAR_POP", "var_pop({0})", type="DOUBLE", aggregate=True, integral=True, numbers=True),
    *_row("LISTAGG", _LISTAGG.replace("{1}", "','"), _LISTAGG, type="VARCHAR", aggregate=True),
    *_row("FIRST_VALUE", f"min_by({{0}}, if({{0}} is null, null, {_ORDER}))", type="0", aggregate=True),
    *_row("LAST_VALUE", f"max_by({{0}}, if({{0}} is null, null, {_ORDER}))", type="0", aggregate=True),
    *_row(
        "ARRAY_AGG",
        f"if(size({_GATHERED}) = 0, null, transform(array_sort({_GATHERED}), e -> e.v))",
        aggregate=True,
    ),
    # Of the array that ARRAY_AGG makes (``sql.composed``).
    *_row("COLLECT", "pgstream_multiset({0})", call="multiset"),
    *_row("JSON_ARRAYAGG", "{*}", type="VARCHAR", first=2, call="json_arrayagg"),
    *_row("JSON_OBJECTAGG", "{*}", type="VARCHAR", first=2, call="json_objectagg"),
]

_MATH = [
    *_row("ABS", "abs({0})", type="0", numbers=True),
    *_row("SIGN", "sign({0})", type="0", call="sign", numbers=True),
    *_row("SQRT CBRT LN LOG10 LOG2 EXP SIN SINH COS COSH TAN TANH COT ASIN ACOS ATAN DEGREES RADIANS", "{name}({0})",
          type="DOUBLE", numbers=True),
    *_row("ATAN2 POWER POW", "{name}({0}, {1})", type="DOUBLE", first=2, numbers=True),
    *_row("LOG", "ln({0})", "log({0}, {1})", type="DOUBLE", numbers=True),
    *_row("MOD", "({0} % {1})", type="1", first=2, numbers=True, call="mod"),
    *_row("ROUND", "round({0})", "round({0}, {1})", type="0", numbers=True),
    *_row("TRUNCATE TRUNC", "pgstream_truncate({0}, 0)", "pgstream_truncate({0}, {1})", type="0", call="truncate",
          numbers=True),
    *_row("CEIL CEILING", "ceil({0})", "{time}", call="ceil", units=(1,)),
    *_row("FLOOR", "floor({0})", "{time}", call="floor", units=(1,)),
    *_row("PI E", "{name}()", type="DOUBLE", first=0),
    *_row("RAND", "rand()", "rand({0})", type="DOUBLE", first=0),
    *_row("RAND_INTEGER", "cast(floor(rand() * {0}) as int)", "cast(floor(rand({0}) * {1}) as int)", type="INTEGER"),
    *_row("BIN", "bin(cast({0} as bigint))", type="VARCHAR"),
    *_row("HEX", "hex({0})", type="VARCHAR"),
    *_row("TO_HEX", "lower(hex({0}))", type="VARCHAR", numbers=True),
    *_row("UUID", "uuid()", type="VARCHAR", first=0),
]  # fmt: skip

_STRINGS = [
    *_all("CONCAT", "concat({*})", 1, "VARCHAR"),
    *_all("CONCAT_WS", "concat_ws({*})", 2, "VARCHAR"),
    *_row("CHAR_LENGTH CHARACTER_LENGTH LENGTH", "char_length({0})", type="INTEGER"),
    *_row("UPPER LOWER REVERSE", "{name}({0})", type="VARCHAR"),
    *_row(
        "INITCAP",
        f"array_join(transform(regexp_extract_all({{0}}, '{_WORDS}', 0), w -> initcap(w)), '')",
        type="VARCHAR",
    ),
    *_row("TRIM", "trim({0})", "trim(BOTH {1} FROM {0})", type="VARCHAR"),
    *_row("TRIM_LEADING LTRIM", "ltrim({0})", "trim(LEADING {1} FROM {0})", type="VARCHAR"),
    *_row("TRIM_TRAILING RTRIM", "rtrim({0})", "trim(TRAILING {1} FROM {0})", type="VARCHAR"),
    *_row("POSITION", "locate({0}, {1})", type="INTEGER", first=2),
    *_row("INSTR STRPOS", "instr({0}, {1})", type="INTEGER", first=2),
    *_row("OCTET_LENGTH", "octet_length({0})", type="INTEGER"),
    *_row("LOCATE", "locate({0}, {1})", "locate({0}, {1}, {2})", type="INTEGER", first=2),
    *_row(
        "SUBSTRING SUBSTR",
        "substring({0}, {1})",
        "substring({0}, {1}, nullif(greatest({2}, -1), -1))",
        type="VARCHAR",
        first=2,
    ),
    *_row("LEFT RIGHT", "{name}({0}, {1})", type="VARCHAR", first=2),
    *_row(
        "REPEAT",
        f"repeat({{0}}, {_bounded('char_length({0}) * cast({1} as bigint)', '{1}')})",
        type="VARCHAR",
        first=2,
    ),
    *_row("REPLACE", "replace({0}, {1}, {2})", type="VARCHAR", first=3),
    *_row(
        "LPAD RPAD",
        f"{{name}}({{0}}, {_bounded('{1}', 'nullif(greatest({1}, -1), -1)')}, nullif({{2}}, ''))",
        type="VARCHAR",
        first=3,
    ),
    *_row("REGEXP_REPLACE", f"regexp_replace({{0}}, {{1}}, {_AS_IT_IS})", type="VARCHAR", first=3),
    *_row("OVERLAY", "overlay({0}, {1}, {2})", "overlay({0}, {1}, {2}, {3})", type="VARCHAR", first=3),
    *_row("REGEXP REGEXP_LIKE", "({0} rlike {1})", type="BOOLEAN", first=2),
    *_row(
        "REGEXP_EXTRACT",
        "pgstream_regexp_extract({0}, {1}, 0)",
        "pgstream_regexp_extract({0}, {1}, {2})",
        type="VARCHAR",
        first=2,
    ),
    *_row("SPLIT_INDEX", f"get(nullif({_QUOTED_SPLIT}, array('')), {{2}})", type="VARCHAR", first=3),
    *_row("SPLIT_PART", f"if({{2}} = 0, {_NO_FIELD}, split_part({{0}}, {{1}}, {{2}}))", type="VARCHAR", first=3),
    *_row("STR_TO_MAP", "str_to_map({0}, ',', '=')", type="MAP<VARCHAR, VARCHAR>"),
    *_row("STR_TO_MAP", "str_to_map({0}, {1}, {2})", type="MAP<VARCHAR, VARCHAR>", first=3),
    *_row("PARSE_URL", "try_parse_url({0}, {1})", "try_parse_url({0}, {1}, {2})", type="VARCHAR", first=2),
    *_row("TO_BASE64", "base64({0})", type="VARCHAR"),
    *_row("FROM_BASE64", "cast(unbase64({0}) as string)", type="VARCHAR"),
    *_row("ASCII", "ascii({0})", type="INTEGER"),
    *_row("CHR", "chr({0})", type="VARCHAR"),
    *_row("ENCODE", "encode({0}, {1})", type="VARBINARY", first=2),
    *_row("DECODE", "decode({0}, {1})", type="VARCHAR", first=2),
    *_row("STARTSWITH ENDSWITH", "{name}({0}, {1})", type="BOOLEAN", first=2),
    *_row("BTRIM", "trim({0})", "trim(BOTH {1} FROM {0})", type="VARCHAR"),
    *_row("TRANSLATE", "translate({0}, {1}, {2})", type="VARCHAR", first=3),
    *_all("ELT", "elt({*})", 2, "VARCHAR"),
    *_row("SPLIT", _QUOTED_SPLIT, type="ARRAY<VARCHAR>", first=2),
    *_row("URL_ENCODE", "url_encode({0})", type="VARCHAR"),
    *_row("URL_DECODE", "try_url_decode({0})", type="VARCHAR"),
    *_row("UNHEX", "unhex({0})", type="VARBINARY"),
    *_row("REGEXP_COUNT REGEXP_INSTR", "{name}({0}, {1})", type="INTEGER", first=2),
    *_row("REGEXP_SUBSTR", "regexp_substr({0}, {1})", type="VARCHAR", first=2),
    *_row(
        "REGEXP_EXTRACT_ALL",
        "regexp_extract_all({0}, {1}, 0)",
        "regexp_extract_all({0}, {1}, {2})",
        type="ARRAY<VARCHAR>",
        first=2,
    ),
    *_row("SIMILAR", "({0} rlike {1})", type="BOOLEAN", first=2, call="similar"),
]

_TIMES = [
    *_row("CURRENT_DATE", "current_date()", type="DATE", first=0),
    *_row("CURRENT_TIME LOCALTIME", "current_time()", type="TIME", first=0),
    *_row("CURRENT_TIMESTAMP NOW CURRENT_ROW_TIMESTAMP", "current_timestamp()", type="TIMESTAMP_LTZ(3)", first=0),
    *_row("LOCALTIMESTAMP", "localtimestamp()", type="TIMESTAMP(3)", first=0),
    *_row("YEAR QUARTER MONTH DAYOFYEAR DAYOFMONTH DAYOFWEEK HOUR MINUTE SECOND", "cast({name}({0}) as bigint)",
          type="BIGINT"),
    *_row("WEEK", "cast(weekofyear({0}) as bigint)", type="BIGINT"),
    *_row("EXTRACT DATE_PART", "{time}", type="BIGINT", first=2, call="extract", units=(0,)),
    *_row("DATE_TRUNC", "{time}", first=2, call="date_trunc", units=(0,)),
    *_row("DATE_FORMAT", "date_format({0}, {1})", type="VARCHAR", first=2),
    *_row("TIMESTAMPADD", "timestampadd({0}, {1}, {2})", type="2", first=3, call="unit", units=(0,)),
    *_row("TIMESTAMPDIFF", "cast(timestampdiff({0}, {1}, {2}) as int)", type="INTEGER", first=3, call="unit",
          units=(0,)),
    *_row("OVERLAPS", "{row}", type="BOOLEAN", first=4, call="overlaps"),
    *_row("CONVERT_TZ",
          "date_format(convert_timezone({1}, {2}, cast({0} as timestamp_ntz)), 'yyyy-MM-dd HH:mm:ss')",
          type="VARCHAR", first=3),
    *_row("FROM_UNIXTIME", "from_unixtime({0})", "from_unixtime({0}, {1})", type="VARCHAR"),
    *_row("UNIX_TIMESTAMP", "unix_timestamp()", "unix_timestamp(cast({0} as timestamp))", "unix_timestamp({0}, {1})",
          type="BIGINT", first=0),
    *_row("TO_DATE", "to_date({0})", "to_date({0}, {1})", type="DATE"),
    *_row("TO_TIMESTAMP", "cast({0} as timestamp_ntz)", "to_timestamp_ntz({0}, {1})", type="TIMESTAMP(3)"),
    *_row("TO_TIMESTAMP_LTZ", "timestamp_millis(cast({0} as bigint))", "{time}", type="TIMESTAMP_LTZ(3)",
          call="to_timestamp_ltz"),
]  # fmt: skip

_CONDITIONS = [
    *_row("NULLIF", "nullif({0}, {1})", type="0", first=2, call="nullif"),
    *_all("COALESCE", "coalesce({*})", 1, "0*"),
    *_row("IFNULL", "coalesce({0}, {1})", type="0*", first=2),
    *_row("IF", "if({0}, {1}, {2})", type="1*", first=3),
    *_row("IS_ALPHA", "coalesce({0} rlike '^\\\\p{{L}}+$', false)", type="BOOLEAN"),
    *_row("IS_DECIMAL", "(try_cast({0} as double) is not null)", type="BOOLEAN"),
    *_row("IS_DIGIT", "coalesce({0} rlike '^[0-9]+$', false)", type="BOOLEAN"),
    *_all("GREATEST LEAST", "if({any_null}, null, {name}({*}))", 2, "0*"),
    *_row("CURRENT_DATABASE", "{0}", type="VARCHAR"),
    *_row("TYPEOF", "upper(typeof({0}))", "upper(typeof({0}))", type="VARCHAR"),
]

_COLLECTIONS = [
    *_row("CARDINALITY", "if({0} is null, null, size({0}))", type="INTEGER"),
    *_row("ELEMENT", "get({0}, 0)", call="part"),
    # A NULL is an element like others, as in Flink: Spark's functions know none.
    *_row("ARRAY_CONTAINS", _has("coalesce(array_contains({0}, {1}), false)"), type="BOOLEAN", first=2, call="element"),
    *_row("ARRAY_DISTINCT", "array_distinct({0})", type="0"),
    *_row("ARRAY_POSITION", "array_position({0}, {1})", type="BIGINT", first=2),
    *_row("ARRAY_REMOVE", f"if({{1}} is null, {WITHOUT_NULLS}, array_remove({{0}}, {{1}}))", type="0", first=2,
          call="element"),
    *_row("ARRAY_REVERSE", "reverse({0})", type="0"),
    *_row("ARRAY_APPEND ARRAY_PREPEND ARRAY_UNION ARRAY_EXCEPT ARRAY_INTERSECT", "{name}({0}, {1})", type="0", first=2),
    *_all("ARRAY_CONCAT", "concat({*})", 1, "0"),
    *_row("ARRAY_MAX ARRAY_MIN", "{name}({0})", call="part"),
    *_row("ARRAY_JOIN", "array_join({0}, {1})", "array_join({0}, {1}, {2})", type="VARCHAR", first=2),
    *_row("ARRAY_SLICE", _slice("{1}", "size({0})"), _slice("{1}", "{2}"), type="0", first=2),
    *_row("ARRAY_FLATTEN", "flatten({0})", call="part"),
    *_row("ARRAY_SORT", "sort_array({0})", "sort_array({0}, {1})", type="0"),
    *_row("MAP_KEYS", "map_keys({0})", call="part"),
    *_row("MAP_VALUES", "map_values({0})", call="part"),
    *_row("MAP_ENTRIES", "map_entries({0})", call="map_entries"),
    *_row("MAP_FROM_ARRAYS", _even("map_from_arrays({0}, {1})"), first=2,
          call="part"),
    *_all("ROW", "{row}", 1, call="row"),
    *_all("MAP_UNION", "map_concat({*})", 1, "0"),
]  # fmt: skip

_JSONS = [
    *_row("JSON_VALUE", f"if({_JSON_NESTED} and left({_JSON_KIND}, 5) in ('OBJEC', 'ARRAY'), null, {_JSON})",
          type="VARCHAR", first=2, call="json"),
    *_row("JSON_QUERY", f"if({_JSON_NESTED} and left({_JSON_KIND}, 5) in ('OBJEC', 'ARRAY'), {_JSON}, null)",
          type="VARCHAR", first=2, call="json"),
    *_row("JSON_QUERY_ARRAY",
          f"from_json(if({_JSON_NESTED} and left({_JSON_KIND}, 5) = 'ARRAY', {_JSON}, null), 'array<string>')",
          type="ARRAY<VARCHAR>", first=2, call="json"),
    *_row("JSON_ERROR", "raise_error('22035 no value of this kind at the path of the JSON')", type="VARCHAR", first=0),
    *_row("JSON_TEXT", _JSON_TEXT, type="VARCHAR", first=2, call="json"),
    *_row("JSON_WRAPPED", _JSON_WRAPPED, type="VARCHAR", first=3, call="json"),
    *_row("JSON_EXISTS", "(try_variant_get(try_parse_json({0}), {1}, 'variant') is not null)", type="BOOLEAN", first=2,
          call="json"),
]  # fmt: skip

_JSONS += [
    *_row("JSON_STRING", "to_json({0})", type="VARCHAR", call="json_string"),
    *_all("JSON_OBJECT JSON_ARRAY", "to_json({*})", 1, "VARCHAR"),
    *_row("IS_JSON", "(try_parse_json({0}) is not null)", _IS_JSON, type="BOOLEAN"),
]
_JSONS = [replace(f, call=f.name.lower()) if f.name in ("JSON_OBJECT", "JSON_ARRAY") else f for f in _JSONS]

_HASHES = [
    *_row("MD5 SHA1", "{name}({0})", type="VARCHAR"),
    *_row("SHA224", "sha2({0}, 224)", type="VARCHAR"),
    *_row("SHA256", "sha2({0}, 256)", type="VARCHAR"),
    *_row("SHA384", "sha2({0}, 384)", type="VARCHAR"),
    *_row("SHA512", "sha2({0}, 512)", type="VARCHAR"),
    *_row("SHA2", "sha2({0}, {1})", type="VARCHAR", first=2),
]

_ROWS = [
    *_row("ROWTIME ROWTIMESTAMP ROW_TIMESTAMP RECORD_TIMESTAMP", "{row}", "{row}", first=0, call="rowtime", units=(0,),
          type="BIGINT"),
    *_row("CURRENT_WATERMARK", "pgstream_watermark()", call="watermark"),
    *_row("ROWKEY ROW_KEY", "{row}", "{row}", first=0, call="rowkey", units=(0,)),
    *_row("ROWMETA ROWMETADATA ROW_METADATA", "{row}", "{row}", first=0, call="rowmetadata", units=(0,),
          type="STRUCT<topic VARCHAR, \"partition\" INTEGER, \"offset\" BIGINT, timestamp_type VARCHAR>"),
]  # fmt: skip


def _table(rows: list[Function]) -> dict[str, Function]:
    out: dict[str, Function] = {}
    for row in rows:
        known = out.get(row.name)
        merged = row if known is None else Function(row.name, {**known.templates, **row.templates}, row.type)
        out[row.name] = merged
    return out


GROUPS = {
    "aggregates": _AGGREGATES, "math": _MATH, "strings": _STRINGS, "times": _TIMES, "conditions": _CONDITIONS,
    "collections": _COLLECTIONS, "json": _JSONS, "hashes": _HASHES, "rows": _ROWS,
}  # fmt: skip
"""The functions by what they are about, each a page of the documentation."""

FUNCTIONS = _table([row for rows in GROUPS.values() for row in rows])

SAME = {"STRING_AGG": "LISTAGG", "ANY_VALUE": "FIRST_VALUE", "BOOL_AND": "MIN", "EVERY": "MIN", "BOOL_OR": "MAX"}
"""Aggregates by PostgreSQL's names, and what they are of those above."""

FUNCTIONS |= {n: replace(FUNCTIONS[m], booleans=m in ("MIN", "MAX")) for n, m in SAME.items()}

_FORMS = {
    "AGE": "a - b", "ARRAY_LENGTH ARRAY_SIZE SIZE": "CARDINALITY(a)", "COLLECT_LIST": "ARRAY_AGG(x)",
    "DATE": "CAST(x AS DATE)", "DATEADD DATE_ADD": "ts + INTERVAL '1' DAY",
    "DATEDIFF DATE_DIFF": "TIMESTAMPDIFF(DAY, a, b)", "ELEMENT_AT": "m['key'], or a[1]",
    "EXPLODE": "CROSS JOIN UNNEST(a) AS e(x)", "GETDATE SYSDATE": "NOW()",
    "GET_JSON_OBJECT JSON_EXTRACT JSON_EXTRACT_PATH_TEXT JSON_EXTRACT_SCALAR": "JSON_VALUE(s, '$.key')",
    "GROUP_CONCAT": "LISTAGG(s, ',')", "IIF": "IF(condition, a, b)", "ISNULL": "x IS NULL", "LCASE": "LOWER(s)",
    "LEN": "CHAR_LENGTH(s)", "NVL": "COALESCE(a, b)", "REGEXP_MATCH REGEXP_MATCHES": "REGEXP_EXTRACT(s, 'pattern')",
    "TO_CHAR": "DATE_FORMAT(ts, 'yyyy-MM-dd HH:mm:ss'), or CAST(x AS VARCHAR)", "TO_JSON": "JSON_STRING(x)",
    "PROCTIME": "CURRENT_TIMESTAMP; ROWTIME() is a row's event time",
    "STRUCT NAMED_STRUCT": "CAST(ROW(a, b) AS STRUCT<x INTEGER, y VARCHAR>)",
    "TO_NUMBER": "CAST(s AS DECIMAL(18, 2))", "UCASE": "UPPER(s)",
}  # fmt: skip
ELSEWHERE = {name: form for names, form in _FORMS.items() for name in names.split()}
"""What to write for functions that other databases have, by their names there."""

# Known to the language and planned: a sentence instead of "does not exist".
PLANNED = frozenset((
    "LEAD", "LAG", "CUME_DIST", "PERCENT_RANK", "NTILE", "GROUPING", "GROUPING_ID", "GROUP_ID", "UNNEST",
))  # fmt: skip
