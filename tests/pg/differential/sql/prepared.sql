PREPARE add (int, int) AS SELECT $1 + $2 AS sum

EXECUTE add (1, 2)

EXECUTE add (1)

EXECUTE add ('x', 2)

PREPARE add AS SELECT 1

EXPLAIN (COSTS OFF) EXECUTE add (1, 2)

SELECT name, statement, parameter_types FROM pg_prepared_statements WHERE from_sql ORDER BY name

DEALLOCATE add

DEALLOCATE PREPARE add

EXECUTE add (1, 2)

PREPARE bad AS SELEC 1

PREPARE ins AS INSERT INTO nowhere VALUES (1)

PREPARE list AS SELECT 'a prepared statement called list'

EXECUTE list

DEALLOCATE ALL

CREATE TABLE t (a int)

PREPARE star AS SELECT * FROM t

EXECUTE star

ALTER TABLE t ADD b text

EXECUTE star

DISCARD PLANS

DISCARD ALL

EXECUTE star
