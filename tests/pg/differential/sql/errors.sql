selec 1

SELECT

SELECT FROM WHERE

SELECT 1 FROM

SELECT * FROM nowhere

SELECT nothing

SELECT nothing FROM pg_class

SELECT pg_class.nothing FROM pg_class

SELECT nowhere.f(1)

SELECT nothing(1)

SELECT abs('x', 'y')

SELECT 1 / 0

SELECT 1::float8 / 0

SELECT 'x'::int

SELECT 99999::int2

SELECT 9223372036854775807 + 1

SELECT '2024-13-01'::date

SELECT '25:00'::time

SELECT 'nope'::uuid

SELECT 'x' + 1

SELECT 1 = 'x'

SELECT 1 || 2

SELECT sqrt(-1)

SELECT ln(0)

SELECT substring('abc' FROM 2 FOR -1)

SELECT (SELECT 1 UNION SELECT 2)

SELECT (SELECT 1, 2)

SELECT 1 UNION SELECT 1, 2

SELECT a, count(*) FROM (VALUES (1)) AS v(a)

SELECT count(*) FROM pg_class GROUP BY nothing

SELECT sum(count(*)) FROM pg_class

SELECT rank() FROM pg_class

SELECT * FROM pg_class ORDER BY 99999

SELECT * FROM pg_class LIMIT -1

SELECT 1 AS a, 2 AS a ORDER BY a

SELECT 'unclosed

SELECT "unclosed

SELECT $tag$ unclosed

SELECT /* unclosed

SELECT 1 /* nested /* comment */ still */ + 1

SELECT E'\xZZ'

SELECT U&'\D800'

SELECT chr(0)

SELECT repeat('x', -1), repeat('', 5)

SELECT pg_sleep('x')

SELECT * FROM generate_series(1, 3, 0)

SELECT ARRAY[1, 2][3], ARRAY[1, 'x']

SELECT array_length(1, 1)

SELECT '{"a"'::jsonb

SELECT jsonb_path_query('{}', 'bad path(')

SELECT regexp_replace('a', '(', 'b')

SELECT to_date('x', 'YYYY')

SELECT set_config('nothing.at.all', 'x', false), current_setting('nowhere')

SELECT current_setting('nowhere', true)

SET nothing = 1

SET work_mem = 'lots'

SET statement_timeout = -5

SHOW nothing

CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL, c int CHECK (c > 0), d int UNIQUE, e varchar(3), f int REFERENCES t)

INSERT INTO t VALUES (1, NULL)

INSERT INTO t VALUES (1, 1, -1)

INSERT INTO t VALUES (1, 1, 1, 1, 'toolong')

INSERT INTO t VALUES (1, 1, 1, 1, 'ok', 42)

INSERT INTO t VALUES (1, 1, 1, 1, 'ok', 1)

INSERT INTO t VALUES (1, 1)

INSERT INTO t VALUES (2, 1, 1, 1)

INSERT INTO t VALUES (1, 2, 3, 4, 5, 6, 7)

INSERT INTO t (a, a) VALUES (1, 1)

INSERT INTO t (nothing) VALUES (1)

DELETE FROM t WHERE nothing = 1

CREATE TABLE e (p int, q int, EXCLUDE USING gist (int4range(p, q) WITH &&))

INSERT INTO e VALUES (1, 5), (3, 8)

CREATE TABLE bad (a nothing)

CREATE TABLE bad (a int, a int)

CREATE TABLE bad (a int PRIMARY KEY, b int PRIMARY KEY)

CREATE TABLE nowhere.bad (a int)

CREATE TABLE pg_catalog.bad (a int)

CREATE INDEX ON t (nothing)

CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT ''x'''

CREATE FUNCTION f() RETURNS int LANGUAGE nothing AS 'x'

CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS 'BEGIN nonsense; END'

CREATE FUNCTION f() RETURNS int LANGUAGE c AS 'x'

CREATE VIEW v AS SELECT nothing

ALTER SYSTEM SET work_mem = '1MB'

CREATE TABLESPACE x LOCATION '/tmp'

SET ROLE nobody_here

SET SESSION AUTHORIZATION nobody_here

DROP GROUP nobody_here

SELECT pg_read_file('/etc/passwd')

SELECT * FROM pg_authid

SELECT pg_terminate_backend(0)

SELECT pg_reload_conf()

UPDATE pg_class SET relname = 'x' WHERE false

DELETE FROM pg_proc

CHECKPOINT

LOAD 'nothing'

FETCH nothing

CLOSE nothing

MOVE nothing

EXECUTE nothing

RELEASE nothing

DO LANGUAGE sql 'SELECT 1'

DO 'nonsense'

CALL abs(1)

CALL nowhere()

EXPLAIN SELECT nothing

EXPLAIN (NONSENSE) SELECT 1

LOCK TABLE nowhere

COMMENT ON TABLE nowhere IS 'x'

IMPORT FOREIGN SCHEMA x FROM SERVER y INTO z

CREATE SUBSCRIPTION s CONNECTION 'host=nowhere' PUBLICATION p

CREATE PUBLICATION p FOR ALL TABLES

REASSIGN OWNED BY postgres TO nobody_here

NOTIFY a, 'b', 'c'

NOTIFY ""

LISTEN

SELECT 1;; SELECT 2

SELECT 1; SELECT 1/0; SELECT 3
