SELECT lo_create(4242)

SELECT lo_from_bytea(4243, '\x68656c6c6f')

SELECT lo_get(4243), lo_get(4243, 1, 3)

SELECT lo_put(4243, 0, '\x4a')

SELECT convert_from(lo_get(4243), 'UTF8')

SELECT lo_create(4242)

BEGIN

SELECT lo_open(4243, 393216)

SELECT loread(0, 3), lo_tell(0)

SELECT lowrite(0, '\x21'), lo_lseek(0, 0, 0), loread(0, 100)

COMMIT

SELECT lo_open(99999, 262144)

SELECT lo_unlink(4242), lo_unlink(4243)

SELECT lo_unlink(4242)

SELECT lo_import('/etc/passwd')

SELECT lo_export(1, '/tmp/x')

CREATE TABLE docs (id int, body text, parsed tsvector GENERATED ALWAYS AS (to_tsvector('english', body)) STORED)

INSERT INTO docs VALUES (1, 'the cats sat'), (2, 'a dog ran') RETURNING id, parsed

CREATE INDEX ON docs USING gin (parsed)

SELECT id, ts_headline(body, 'cat'::tsquery) FROM docs WHERE parsed @@ 'cat'::tsquery

ALTER TABLE docs ENABLE ROW LEVEL SECURITY

ALTER TABLE docs FORCE ROW LEVEL SECURITY

SELECT count(*) FROM docs

CREATE POLICY one ON docs USING (id = 1)

SELECT id FROM docs

INSERT INTO docs VALUES (3, 'no')

CREATE FOREIGN DATA WRAPPER w

CREATE SERVER s FOREIGN DATA WRAPPER w

CREATE COLLATION german (provider = icu, locale = 'de')

CREATE TEXT SEARCH CONFIGURATION mine (COPY = english)

CREATE TEMP TABLE temporary (a int) ON COMMIT DROP

CREATE TEMP VIEW tv AS SELECT 1 AS a

SELECT * FROM tv

CREATE TEMP TABLE pg_temp.t2 (a int)

DROP OWNED BY alice RESTRICT

CREATE EVENT TRIGGER et ON ddl_command_start EXECUTE FUNCTION nothing()

ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC

EXPLAIN (COSTS OFF) SELECT * FROM docs WHERE id = 1

EXPLAIN (FORMAT json, COSTS OFF) SELECT 1

EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) SELECT count(*) FROM generate_series(1, 10)

EXPLAIN (COSTS OFF, VERBOSE) INSERT INTO docs (id) VALUES (9)

EXPLAIN (GENERIC_PLAN, COSTS OFF) SELECT * FROM docs WHERE id = $1

EXPLAIN (COSTS OFF) CREATE TABLE x AS SELECT 1

EXPLAIN CREATE TABLE x (a int)
