-- psql as people and scripts use it: several results, \d, \copy, \gdesc, \gset, \gexec, FETCH_COUNT, errors in full.
-- Read from standard input, so that errors name no file.
\pset pager off
\getenv target TARGET
SELECT :'target' = 'pgstream' AS pgstream, :VERSION_NUM >= 160000 AS bind \gset
SELECT current_user, current_database();
SELECT 1 AS one \; SELECT 2 AS two;
CREATE TABLE of_psql (id int CONSTRAINT of_psql_pk PRIMARY KEY, name varchar(20) NOT NULL DEFAULT 'x', at timestamptz);
COMMENT ON TABLE of_psql IS 'a table';
\d of_psql
\dt+ of_psql
\di of_psql*
\dp of_psql
INSERT INTO of_psql VALUES (1, 'one', '2024-01-02 03:04:05.678+00') RETURNING *;
COPY of_psql (id, name) FROM STDIN;
2	two
3	zö
\.
\copy (SELECT * FROM of_psql ORDER BY id) TO STDOUT WITH (FORMAT csv, HEADER)
INSERT INTO of_psql VALUES (1);
SELECT nme FROM of_psql;
SELECT 1 / 0;
\errverbose
\echo :LAST_ERROR_SQLSTATE :ERROR :ROW_COUNT
BEGIN;
SAVEPOINT s;
SELECT * FORM of_psql;
SELECT 1;
ROLLBACK TO s;
DELETE FROM of_psql;
ROLLBACK;
SELECT count(*) FROM of_psql;
\set ON_ERROR_ROLLBACK on
BEGIN;
SELECT 1 / 0;
SELECT 'still here' AS rolled_back_by_itself;
COMMIT;
\set FETCH_COUNT 100
SELECT g FROM generate_series(1, 1000) g \g | tail -3
\unset FETCH_COUNT
SELECT 1::int2 AS a, 'x'::varchar(3) AS b, now() AS c, ARRAY[1.5] AS d \gdesc
SELECT format('SELECT %s AS made', n) FROM generate_series(1, 2) n \gexec
SELECT n % 2 AS r, n AS c, n * 10 AS v FROM generate_series(1, 4) n \crosstabview
\x
SELECT * FROM of_psql WHERE id = 1;
\x
PREPARE p (int) AS SELECT $1 + 1 AS n;
EXECUTE p (41);
LISTEN news;
NOTIFY news, 'hello';
DO $$ BEGIN RAISE NOTICE 'hear this' USING DETAIL = 'all of it', HINT = 'listen'; END $$;
EXPLAIN (COSTS OFF) SELECT * FROM of_psql WHERE id = 1;
SET TimeZone = 'Asia/Tokyo';
SHOW TimeZone;
\if :bind
SELECT $1::int + 1 AS n \bind 41 \g
\endif
DROP TABLE of_psql;
\if :pgstream
\echo == pgstream
LIST STORES \g | grep -c of_languages
CREATE STREAM of_psql (n BIGINT, userid VARCHAR) WITH ('store' = of_languages, 'topic' = 'of_languages', 'value.format' = 'json');
\d of_psql
SELECT n, userid FROM of_psql WITH ('starting.position' = 'earliest') LIMIT 3;
SELECT n + 1 AS more FROM of_psql \gdesc
SELECT nn FROM of_psql;
SELECT 1 AS one \; DROP STREAM of_psql \; SELECT 2 AS two;
SELECT * FROM of_languages_counts ORDER BY userid;
\d of_languages_counts
DROP STORE nope;
\endif
