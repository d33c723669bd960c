SELECT true, false, NULL::bool, 't'::bool

SELECT 1::int2, -32768::int2, 2147483647::int4, -9223372036854775808::int8

SELECT 1.5::float4, 1e-30::float4, 'Infinity'::float8, '-Infinity'::float8, 'NaN'::float8, 0.1::float8 + 0.2

SELECT 0::numeric, 1.10::numeric(10, 2), 'NaN'::numeric, 'Infinity'::numeric, 1e100::numeric, -0.0001::numeric, 12345678901234567890.123456789::numeric

SELECT 'a'::"char", 'n'::name, 'v'::varchar, 'v3'::varchar(3), 'c'::char(5), 'ü ß 漢 🦆'::text, ''::text

SELECT '\x00ff10'::bytea, ''::bytea, E'\\000\\377'::bytea

SET bytea_output = 'escape'

SELECT '\x00ff61'::bytea

RESET bytea_output

SELECT '2024-02-29'::date, 'infinity'::date, '0044-03-15 BC'::date, '5874897-12-31'::date

SELECT '23:59:59.999999'::time, '24:00'::time, '10:00+05:30'::timetz, '12:00'::time(0)

SELECT '2024-01-02 03:04:05.678901'::timestamp, '2024-01-02 03:04:05+02'::timestamptz, 'infinity'::timestamp, '-infinity'::timestamptz, '2024-01-02 03:04:05.6'::timestamp(0)

SELECT '1 year 2 mons -3 days 04:05:06.7'::interval, '0'::interval, '-1 day'::interval, '1 hour'::interval hour

SET intervalstyle = 'iso_8601'

SELECT '1 year 2 mons -3 days 04:05:06.7'::interval

SELECT 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid, '00:1b:2c:3d:4e:5f'::macaddr, '192.168.1.5/24'::inet, '10.0.0.0/8'::cidr, '::1'::inet

SELECT '{"a": [1, 2.50, null, "ü"], "b": {}}'::json, '{"b": 1, "a": [1, 2.50, null]}'::jsonb, 'null'::jsonb, '"x"'::jsonb

SELECT '{"a": {"b": [1, 2]}}'::jsonb #> '{a,b,1}', '{"a": 1}'::jsonb ->> 'a', '[1,2]'::jsonb @> '1', jsonb_build_object('k', 1, 'n', NULL)

SELECT jsonb_path_query('{"a": [1, 2, 3]}', '$.a[*] ? (@ > 1)')

SELECT * FROM jsonb_to_recordset('[{"a": 1, "b": "x"}, {"a": 2}]') AS r(a int, b text)

SELECT * FROM json_each('{"a": 1, "b": "x"}')

SELECT '{"bad": }'::json

SELECT B'1010', '101'::bit(3), '1'::bit varying(5)

SELECT '(1,2)'::point, '[(0,0),(1,1)]'::lseg, '((0,0),(1,1))'::box, '<(1,2),3>'::circle, '((0,0),(1,0),(1,1))'::polygon, '{1,2,3}'::line, '[(0,0),(1,1)]'::path

SELECT 'fat cats ate'::tsvector, 'fat & !rat'::tsquery, to_tsvector('english', 'The quick brown foxes') @@ to_tsquery('english', 'fox')

SELECT 12.34::money, 1::oid, 'pg_class'::regclass, 'int4'::regtype, 'sum(int4)'::regprocedure, '0/16B3748'::pg_lsn, '(0,1)'::tid, '5'::xid

SELECT ARRAY[1, 2, NULL], ARRAY['a', 'b,c', 'd"e', '', 'NULL', NULL], '{}'::int[], ARRAY[[1, 2], [3, 4]], '[0:2]={1,2,3}'::int[]

SELECT ARRAY[1.5, NULL]::numeric[], ARRAY['2024-01-01'::date], ARRAY[true, false], ARRAY['{"a":1}'::jsonb], ARRAY['\xff'::bytea]

SELECT '{1,2'::int[]

SELECT '[1,5)'::int4range, '(,5]'::int8range, 'empty'::numrange, '[2024-01-01,2024-02-01)'::daterange, '["2024-01-01 00:00","2024-01-02 00:00")'::tsrange

SELECT '{[1,3), [5,8)}'::int4multirange, int4range(1, 5) * int4range(3, 9), range_agg(int4range(g, g + 2)) FROM generate_series(1, 6, 3) g

SELECT '[5,1]'::int4range

SELECT ROW(1, 'x', NULL), ROW(), ROW(ROW(1, 2), ARRAY[1])

CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')

SELECT 'ok'::mood, 'happy'::mood > 'sad'::mood, enum_range(NULL::mood)

SELECT 'none'::mood

ALTER TYPE mood ADD VALUE 'great' AFTER 'happy'

SELECT 'great'::mood

CREATE TYPE pair AS (a int, b text)

SELECT ROW(1, 'x')::pair, (ROW(1, 'x')::pair).b, ARRAY[ROW(1, 'a,b')::pair, NULL]

CREATE TYPE person AS (name text, feels mood, pairs pair[])

SELECT ROW('ann', 'ok', ARRAY[ROW(1, 'x')::pair])::person

CREATE DOMAIN positive AS int CHECK (VALUE > 0)

SELECT 5::positive, ARRAY[1, 2]::positive[]

SELECT -5::positive

SELECT (-5)::positive

CREATE TYPE floats AS RANGE (subtype = float8, subtype_diff = float8mi)

SELECT floats(1.5, 2.5), '[1,2]'::floats

CREATE TABLE typed (m mood, p pair, d positive, r floats, ms mood[])

INSERT INTO typed VALUES ('ok', ROW(1, 'x'), 3, '[1,2)', '{sad,happy}') RETURNING *

INSERT INTO typed (d) VALUES (0)

INSERT INTO typed (m, d) VALUES ($1, $2) RETURNING m, d
\params great|9

SELECT * FROM typed ORDER BY d

DROP TYPE mood

CREATE TYPE gone AS ENUM ()

DROP TYPE gone CASCADE

SELECT xmlparse(content '<a/>')

SELECT 1::int2 + 1::int4 AS i, 1 + 1.0 AS n, 'a' || 'b' AS t, NULL AS u, 'unknown' AS k, current_date - current_date AS zero

SELECT 'x'::text COLLATE "C", 'abc' LIKE 'a%', 'abc' ~ '^a', 'abc' SIMILAR TO 'a_c'

SELECT pg_typeof(1), pg_typeof('x'), pg_typeof(NULL), pg_typeof(ARRAY[1])

SELECT '2024-01-02 03:04:05+00'::timestamptz AT TIME ZONE 'America/New_York', extract(epoch FROM '1970-01-02'::timestamptz), date_trunc('month', '2024-05-06'::date), to_char('2024-01-02'::date, 'Day, DD Mon YYYY')

SELECT 1::int2::text, 'tr'::bool, 1::bool, '1e3'::numeric, ' 42 '::int, '0x1F'::int, 1_000

SELECT refcursor 'x', 'u'::aclitem
