CREATE TABLE list (stream int, store text, query text, "describe" text, print text, use text, terminate text, restart text)

INSERT INTO list VALUES (1, 'kafka', 'SELECT * FROM pageviews', 'd', 'p', 'u', 't', 'r') RETURNING *

SELECT stream, store, query, "describe", print, use, terminate, restart FROM list

SELECT list.stream, list.store AS topic FROM list AS stream_list, list WHERE list.query IS NOT NULL

TABLE list

SELECT 'LIST STREAMS' AS list, 'CREATE STREAM x' AS "create"

-- LIST STREAMS
SELECT 'after a comment'

/* DESCRIBE STREAM pageviews; */ SELECT 'after a block comment'

SELECT $$CREATE STREAM s WITH ('store' = 'k')$$ AS text

DO $$ BEGIN EXECUTE 'SELECT ''LIST STREAMS'''; END $$

CREATE VIEW streams AS SELECT 1 AS stream

CREATE VIEW queries AS SELECT 'pageviews' AS name

SELECT * FROM streams, queries

DROP VIEW streams, queries

DROP VIEW nowhere

DROP VIEW IF EXISTS nowhere

CREATE TABLE stream (a int)

DROP TABLE stream

DROP TABLE nowhere

CREATE TABLE store (a int)

UPDATE store SET a = 1

INSERT INTO store VALUES (1)

DELETE FROM store

CREATE TABLE entity (a int, value text)

INSERT INTO entity VALUES (1, 'x')

INSERT INTO entity (a) VALUES (2)

INSERT INTO entity SELECT 3, 'y'

INSERT INTO entity DEFAULT VALUES

SELECT * FROM entity ORDER BY a

CREATE TABLE topic (a int) WITH (fillfactor = 70)

CREATE INDEX topic_a ON topic (a) WITH (fillfactor = 70)

SELECT pageviews FROM (SELECT 1 AS pageviews) AS t

SELECT 'users', 'pageviews' AS users FROM list

WITH pageviews AS (SELECT 1 AS a) SELECT * FROM pageviews

WITH users(a) AS (VALUES (1), (2)) SELECT sum(a) FROM users

CREATE FUNCTION pageviews(n int) RETURNS int LANGUAGE sql RETURN n

SELECT pageviews(1)

SELECT list.* FROM list

CREATE SEQUENCE query

SELECT nextval('query')

CREATE TYPE changelog AS ENUM ('stream', 'table')

SELECT 'stream'::changelog

CREATE DOMAIN struct AS text

SELECT 'x'::struct

SELECT use.a FROM (SELECT 1 AS a) AS use

SELECT 1 AS list, 2 AS use, 3 AS print, 4 AS terminate, 5 AS restart, 6 AS stop, 7 AS can, 8 AS generate

SHOW search_path

SHOW timezone

SHOW TRANSACTION ISOLATION LEVEL

SHOW SESSION AUTHORIZATION

CREATE MATERIALIZED VIEW kept AS SELECT g FROM generate_series(1, 3) g

SELECT * FROM kept

REFRESH MATERIALIZED VIEW kept

CREATE MATERIALIZED VIEW IF NOT EXISTS kept AS SELECT 1

CREATE MATERIALIZED VIEW empty AS SELECT 1 AS a WITH NO DATA

SELECT * FROM empty

CREATE UNIQUE INDEX ON kept (g)

REFRESH MATERIALIZED VIEW CONCURRENTLY kept

CREATE MATERIALIZED VIEW of_list AS SELECT stream, count(*) FROM list GROUP BY stream

CREATE MATERIALIZED VIEW of_nothing AS SELECT * FROM nowhere

DROP MATERIALIZED VIEW kept, empty

DROP MATERIALIZED VIEW of_list

DROP MATERIALIZED VIEW nowhere

DROP MATERIALIZED VIEW IF EXISTS nowhere

CREATE TABLE session (window_start timestamp, window_end timestamp, size int)

SELECT * FROM session

SELECT hop, size FROM (SELECT 1 AS hop, 2 AS size) AS tumble

CREATE PROCEDURE start() LANGUAGE sql AS ''

CALL start()

EXPLAIN (COSTS OFF) SELECT * FROM list



GRANT SELECT ON list TO PUBLIC

REVOKE ALL ON list FROM PUBLIC

DECLARE pageviews CURSOR WITH HOLD FOR SELECT stream FROM list

FETCH ALL FROM pageviews

CLOSE pageviews

PREPARE users AS SELECT 1

EXECUTE users

COPY list (stream) TO STDOUT

COPY (SELECT stream AS pageviews FROM list) TO STDOUT

ALTER TABLE list RENAME TO stop

SELECT count(*) FROM stop

COMMENT ON TABLE stop IS 'CREATE STREAM'

SELECT row_number() OVER (ORDER BY stream) FROM stop

BEGIN

SELECT 'application'

END

BEGIN WORK

SELECT 1

COMMIT WORK

ANALYZE stop

RESET ALL

START TRANSACTION

ROLLBACK WORK
