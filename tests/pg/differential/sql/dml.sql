CREATE TABLE t (id serial PRIMARY KEY, name text UNIQUE, n int DEFAULT 7, at timestamptz DEFAULT '2024-05-06 07:08:09+00')

INSERT INTO t (name) VALUES ('a'), ('b'), ('c')

INSERT INTO t (name, n) VALUES ('d', 1) RETURNING id, name, n, at

INSERT INTO t (name) VALUES ('a')

INSERT INTO t (name) VALUES ('a') ON CONFLICT DO NOTHING

INSERT INTO t (name) VALUES ('a') ON CONFLICT (name) DO UPDATE SET n = t.n + 1 RETURNING *

INSERT INTO t DEFAULT VALUES RETURNING id

INSERT INTO t SELECT 100 + g, 'g' || g, g FROM generate_series(1, 5) g RETURNING id

UPDATE t SET n = n * 2 WHERE id > 100

UPDATE t SET n = 0 WHERE false

UPDATE t SET n = t.n + s.g FROM generate_series(1, 3) AS s(g) WHERE t.id = 100 + s.g RETURNING t.id, t.n, s.g

UPDATE t SET nothing = 1

UPDATE t SET id = 1

DELETE FROM t WHERE id = 105 RETURNING *

DELETE FROM t WHERE id = 999

WITH gone AS (DELETE FROM t WHERE id = 104 RETURNING *) SELECT name FROM gone

WITH new AS (INSERT INTO t (name) VALUES ('w') RETURNING id) UPDATE t SET n = 1 FROM new WHERE t.id = 101 RETURNING t.name

MERGE INTO t USING (VALUES ('a', 50), ('zz', 60)) AS s(name, n) ON t.name = s.name WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (name, n) VALUES (s.name, s.n)

SELECT id, name, n FROM t ORDER BY id

SELECT name, count(*) OVER (PARTITION BY n % 2), rank() OVER (ORDER BY n, id) FROM t ORDER BY id

SELECT n % 2 AS odd, count(*), array_agg(name ORDER BY id) FROM t GROUP BY ROLLUP (1) ORDER BY 1 NULLS LAST

SELECT DISTINCT ON (n % 2) n, name FROM t ORDER BY n % 2, id

SELECT * FROM t ORDER BY id LIMIT 2 OFFSET 1

SELECT * FROM t ORDER BY id FETCH FIRST 1 ROW WITH TIES

SELECT * FROM t WHERE false

SELECT t, t.* FROM t ORDER BY id LIMIT 1

SELECT a.id, b.name FROM t a LEFT JOIN t b ON a.id = b.n ORDER BY 1, 2

SELECT * FROM t a, LATERAL (SELECT a.n + 1 AS m) b ORDER BY a.id LIMIT 2

WITH RECURSIVE r(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM r WHERE i < 5) SELECT sum(i) FROM r

VALUES (1, 'one'), (2, NULL) ORDER BY 1 DESC

TABLE t

SELECT 1 UNION SELECT 2 INTERSECT SELECT 2 EXCEPT SELECT 3 ORDER BY 1

SELECT * FROM t FOR UPDATE SKIP LOCKED

SELECT * INTO made FROM t

SELECT count(*) FROM made

SELECT * FROM t TABLESAMPLE SYSTEM (100) WHERE id = 1

SELECT FROM t

SELECT $1::int + $2::int AS sum, $3 AS text, $4::text IS NULL AS none
\params 40|2|it's|NULL

INSERT INTO t (name, n) VALUES ($1, $2) RETURNING id, name
\params bound|-5

SELECT name FROM t WHERE name = ANY ($1) ORDER BY 1
\params {a,bound,none}

SELECT $1::date + $2::interval, $3::jsonb -> 'a', $4::uuid, $5::bytea
\params 2024-02-29|1 year|{"a": [1, 2]}|a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11|\xdeadbeef

SELECT $1
\params only

SELECT $1::int
\params not a number

SELECT $2::int
\params 1|2

SELECT g FROM generate_series(1, 10) g
\rows 4

INSERT INTO t (name) SELECT 'r' || g FROM generate_series(1, 10) g RETURNING name
\rows 4

UPDATE t SET n = 3
\rows 2

SELECT g FROM generate_series(1, 8) g
\rows 4
