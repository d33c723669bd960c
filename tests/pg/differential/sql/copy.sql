CREATE TABLE c (a int, b text, d date)

COPY c FROM STDIN
\copy 1	one	2024-01-01
\copy 2	\N	\N
\copy 3	tab\\there	2024-12-31

SELECT * FROM c ORDER BY a

COPY c TO STDOUT

COPY c TO STDOUT (FORMAT csv, HEADER, NULL 'none', FORCE_QUOTE *)

COPY c FROM STDIN WITH (FORMAT csv, HEADER true)
\copy a,b,d
\copy 4,"with ""quotes"", and a comma",
\copy 5,plain,2020-02-20

COPY c (a) FROM STDIN CSV
\copy 6
\copy 7

COPY c TO STDOUT DELIMITER '|' NULL ''

COPY (SELECT a, b FROM c ORDER BY a DESC) TO STDOUT

COPY c FROM STDIN
\copy x	y	z

COPY c FROM STDIN
\copy 1

COPY c FROM STDIN
\copy 8	eight	2024-01-01
\fail the client gave up

COPY c FROM STDIN
\fail nothing sent

SELECT count(*) FROM c

COPY c (a, b) FROM STDIN (FORMAT binary)
\hex 5047434f50590aff0d0a00 00000000 00000000 0002 00000004 00000064 00000003 616263 0002 00000004 00000065 ffffffff ffff

COPY (SELECT a, b FROM c WHERE a >= 100 ORDER BY a) TO STDOUT (FORMAT binary)

COPY c FROM STDIN (FORMAT binary)
\hex 00010203

COPY nowhere FROM STDIN

COPY nowhere TO STDOUT

COPY c (nothing) TO STDOUT

COPY c FROM STDIN (FORMAT nonsense)

COPY c FROM '/etc/passwd'

COPY c TO PROGRAM 'cat'

COPY c FROM STDIN (FORMAT csv, QUOTE '''', ESCAPE '\')
\copy 9,'it\'s',2024-01-01

COPY c FROM STDIN WHERE a > 10
\copy 10	no	2024-01-01
\copy 11	yes	2024-01-01

COPY c FROM STDIN
\copy 12	twelve	2024-01-01
\copy \.

COPY (SELECT 1) TO STDOUT; SELECT 2

COPY (INSERT INTO c VALUES (20, 'r') RETURNING *) TO STDOUT

COPY (VALUES (1, E'line\nbreak'), (2, E'back\\slash')) TO STDOUT

COPY (SELECT repeat('x', 1000), g FROM generate_series(1, 200) g) TO STDOUT

COPY (SELECT 10 / (5 - g) FROM generate_series(1, 9) g) TO STDOUT

SELECT count(*), sum(a) FROM c

BEGIN

COPY c FROM STDIN
\copy 50	in a block	2024-01-01

COPY c FROM STDIN
\copy broken

ROLLBACK

COPY c FROM STDIN ENCODING 'LATIN1'
\hex 35310975e40a

COPY (SELECT 'ä') TO STDOUT ENCODING 'LATIN1'

COPY c FROM STDIN FREEZE
