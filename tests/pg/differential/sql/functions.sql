CREATE FUNCTION add(a int, b int DEFAULT 10) RETURNS int LANGUAGE sql IMMUTABLE RETURN a + b

SELECT add(1, 2), add(1), add(b => 5, a => 1)

SELECT add()

SELECT add('x')

CREATE FUNCTION list(n int) RETURNS SETOF int LANGUAGE sql AS $$ SELECT generate_series(1, n) $$

SELECT list(3)

SELECT * FROM list(2)

CREATE FUNCTION print(text) RETURNS text LANGUAGE plpgsql AS $body$ BEGIN RAISE NOTICE 'printed %', $1; RETURN upper($1); END $body$

SELECT print('x'), print('y')

CREATE FUNCTION describe(OUT name text, OUT n int) LANGUAGE sql AS $$ SELECT 'x', 1 $$

SELECT * FROM describe()

SELECT describe()

CREATE FUNCTION pairs() RETURNS TABLE (a int, b text) LANGUAGE plpgsql AS $$ BEGIN RETURN QUERY SELECT 1, 'x'::text; a := 2; b := 'y'; RETURN NEXT; END $$

SELECT * FROM pairs()

CREATE OR REPLACE FUNCTION fails(code text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING MESSAGE = 'mine', ERRCODE = code, DETAIL = 'a detail', HINT = 'a hint', COLUMN = 'c', CONSTRAINT = 'k', DATATYPE = 'd', TABLE = 't', SCHEMA = 's'; END $$

SELECT fails('P0001')

SELECT fails('23505')

SELECT fails('XX123')

SELECT fails('bad code')

CREATE FUNCTION nested() RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM fails('22012'); EXCEPTION WHEN division_by_zero THEN RAISE WARNING 'caught'; RETURN 1; END $$

SELECT nested()

CREATE FUNCTION deep() RETURNS int LANGUAGE plpgsql AS $$ DECLARE x int; BEGIN EXECUTE 'SELECT 1 / 0' INTO x; RETURN x; END $$

SELECT deep()

CREATE PROCEDURE work(INOUT n int) LANGUAGE plpgsql AS $$ BEGIN n := n * 2; COMMIT; END $$

CALL work(21)

BEGIN

CALL work(1)

ROLLBACK

CREATE PROCEDURE says(t text) LANGUAGE plpgsql AS $$ BEGIN RAISE INFO 'info %', t; END $$

CALL says('hello')

CREATE PROCEDURE body(a int) BEGIN ATOMIC SELECT 1; SELECT CASE WHEN a > 1 THEN 2 ELSE 3 END; END

CALL body(1)

CREATE TABLE t (a int, b int)

CREATE FUNCTION doubled() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '% % on %', TG_WHEN, TG_OP, TG_TABLE_NAME; NEW.b := NEW.a * 2; RETURN NEW; END $$

CREATE TRIGGER doubles BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION doubled()

INSERT INTO t VALUES (1), (2) RETURNING *

UPDATE t SET a = 5 WHERE a = 1 RETURNING b

ALTER TABLE t DISABLE TRIGGER doubles

INSERT INTO t VALUES (9) RETURNING *

DROP TRIGGER doubles ON t

DROP FUNCTION doubled()

DO $$ BEGIN FOR i IN 1..20 LOOP RAISE NOTICE 'line %', i; END LOOP; END $$

DO $outer$ BEGIN EXECUTE $inner$ CREATE TABLE from_do (a int) $inner$; END $outer$

SELECT * FROM from_do

DO $$ BEGIN RAISE DEBUG 'unseen'; RAISE LOG 'unseen too'; RAISE INFO 'seen'; END $$

SET client_min_messages = error

DO $$ BEGIN RAISE NOTICE 'unseen'; RAISE WARNING 'unseen'; END $$

RESET client_min_messages

DO $$ BEGIN ASSERT 1 = 2, 'not equal'; END $$

DO $$ BEGIN RETURN QUERY SELECT 1; END $$

CREATE AGGREGATE total (int) (sfunc = int4pl, stype = int, initcond = '0')

SELECT total(g) FROM generate_series(1, 4) g

CREATE OPERATOR === (leftarg = int, rightarg = int, function = int4eq)

SELECT 1 === 1, 1 === 2

CREATE CAST (text AS int) WITH INOUT

SELECT proname, pronargs FROM pg_proc WHERE proname IN ('list', 'print', 'describe') ORDER BY 1

DROP FUNCTION list, print, describe

DROP FUNCTION IF EXISTS nowhere(int)

DROP PROCEDURE work

SELECT generate_series(1, 3), generate_series(1, 2)

SELECT * FROM unnest(ARRAY[1, 2], ARRAY['a', 'b', 'c']) WITH ORDINALITY

SELECT * FROM ROWS FROM (generate_series(1, 2), generate_series(5, 7)) AS f(a, b)

SELECT coalesce(NULL, 1), nullif(1, 1), greatest(1, 2), least('a', 'b'), CASE WHEN true THEN 'x' END

SELECT string_agg(x, ',' ORDER BY x), bool_and(true), count(*) FILTER (WHERE x > 'a'), percentile_cont(0.5) WITHIN GROUP (ORDER BY 1) FROM (VALUES ('b'), ('a')) AS v(x)

SELECT format('%s %I %L', 'a', 'B c', 'd''e'), quote_ident('select'), concat_ws('-', 1, NULL, 2), md5('x'), encode('x', 'base64'), convert_from('\xc3bc', 'UTF8')
