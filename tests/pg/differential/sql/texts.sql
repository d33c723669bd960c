-- only a comment

/* a block comment */

/* nested /* comments */ end */ SELECT 1 -- and this

;

;;;

SELECT 1; -- a comment behind

SELECT 1; SELECT 'a;b' AS "semi;colon"; SELECT $$;$$

SELECT 'it''s', E'a\'b\\c\n\t\u00fc', U&'d\0061t\+000061', U&'!0041' UESCAPE '!', B'01', X'1F'

SELECT $$dollar 'quoted' text$$, $tag$with $$ inside$tag$, $ü$unicode tag$ü$

SELECT 'two'
'parts'

SELECT 'two' 'parts'

SELECT "Quoted Column" FROM (SELECT 1 AS "Quoted Column") AS "Quoted ""Table"""

SELECT 1 AS "ü", 2 AS "漢字", 3 AS "with space", 4 AS "UPPER", 5 AS Folded, 6 AS "🦆"

SELECT 1 AS very_long_name_of_a_column_that_has_more_than_sixty_three_characters_in_its_name

CREATE TABLE "Strange "" Name" ("a;b" int, "select" text, " " int)

INSERT INTO "Strange "" Name" VALUES (1, 'x', 2) RETURNING *

SELECT "a;b", "select", " " FROM "Strange "" Name"

SELECT 'a' 	  , 	'b'

select	1	as	tabs

SELECT
  1,
  2 -- comment
  , 3

SELECT--comment
1

SELECT/**/1

SELECT(1)

(SELECT 1)

((SELECT 1) UNION (SELECT 2)) ORDER BY 1

SELECT 1WHERE true

SELECT 1e5, .5, 5., 1.5e-3, 0b11, 0o17, 1_000.5

SELECT '{"json": "in text; with semicolon"}', '\backslash\'

SELECT 1 AS a, 'b' b, 2 "c", 3 AS value, 4 AS name, 5 AS type, 6 AS order_

SELECT -1, - 1, +1, 2 - -1, @ -5, 5 !~ '4', !! 'a'::tsquery

SELECT 1 = 1 AND NOT false OR NULL IS NULL, 1 BETWEEN 0 AND 2, 1 IN (1, 2), 1 <> ALL (ARRAY[2])

SELECT 'ﬀ', 'ß', upper('ß'), lower('İ'), length('👨‍👩‍👧'), reverse('añb')

SELECT repeat('x', 100000), repeat('ü', 5000)

SELECT g, repeat('y', 500) FROM generate_series(1, 500) g

SELECT length(repeat('z', 3000000)), repeat('z', 3000000)

SELECT 1, 2; BEGIN; SELECT 3; COMMIT; SELECT 4

SELECT 1; SELECT nothing; SELECT 2

CREATE TABLE a (x int); INSERT INTO a VALUES (1), (2); SELECT * FROM a; DROP TABLE a

CREATE FUNCTION two() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END; SELECT two()

CREATE RULE r AS ON INSERT TO nowhere DO (SELECT 1; SELECT 2)

   SELECT 'leading space'

﻿SELECT 'a byte order mark'

SELECT 'a' AS a; /* unclosed

SELECT 1 \gset

SELECT :name

SELECT ?

SELECT `back` 

SELECT [1]

SELECT {1}

SELECT @@version

SELECT a -> b FROM (SELECT '{}'::jsonb AS a, 'k' AS b) AS x

SELECT 1 # comment
