SHOW server_version_num

SHOW search_path

SET search_path = nowhere, public

SHOW search_path

SELECT current_schemas(false)

RESET search_path

SET application_name = 'the tests'

SET application_name TO DEFAULT

SET TimeZone = 'Asia/Tokyo'

SELECT '2024-01-01 00:00+00'::timestamptz

SET TIME ZONE LOCAL

SET TIME ZONE INTERVAL '-08:00' HOUR TO MINUTE

SELECT '2024-01-01 00:00+00'::timestamptz

SET TIME ZONE 'Mars/Phobos'

RESET TimeZone

SET DateStyle = 'German, DMY'

SELECT '2024-02-01'::date, '03.02.2024'::date

SET datestyle TO DEFAULT

SET standard_conforming_strings = off

SELECT 'a\nb', '\x41'

SET standard_conforming_strings = on

SET backslash_quote = on

SET escape_string_warning = off

SET extra_float_digits = 0

SELECT 0.1::float8 + 0.2::float8

RESET ALL

SET client_encoding = 'LATIN1'

SELECT U&'\00FC', 'plain'

SELECT U&'\6F22'

SET NAMES 'UTF8'

SET client_encoding = 'nonsense'

RESET client_encoding

SHOW client_encoding

SET my.own = 'value'

SHOW my.own

SELECT current_setting('my.own')

SET my.own TO DEFAULT

SHOW my.own

BEGIN

SET LOCAL my.own = 'local'

SET TimeZone = 'UTC'

ROLLBACK

SHOW my.own

SELECT set_config('TimeZone', 'Europe/Paris', false)

SELECT set_config('my.own', 'x', true), current_setting('my.own')

SELECT name, setting FROM pg_settings WHERE name IN ('TimeZone', 'DateStyle') ORDER BY 1

SET statement_timeout = 50

SELECT pg_sleep(5)

RESET statement_timeout

SET SESSION work_mem = '8MB'

SHOW work_mem

SET LOCAL work_mem = '9MB'

SHOW ALL LIMIT 1

SET enable_seqscan TO off; SHOW enable_seqscan; RESET enable_seqscan

SET ROLE NONE

RESET ROLE

SET SESSION AUTHORIZATION DEFAULT

SHOW is_superuser

SELECT current_user, session_user, current_role, current_database(), current_schema, current_catalog, user

SELECT version() LIKE 'PostgreSQL 1%'

DISCARD TEMP

DISCARD SEQUENCES

DISCARD ALL

CREATE TEMP TABLE gone (a int)

DISCARD ALL

SELECT * FROM gone

SET default_transaction_read_only = on

CREATE TABLE no (a int)

RESET default_transaction_read_only

SET lc_messages = 'C'

SET max_connections = 1

SET shared_buffers = '1GB'

SET log_statement = 'all'
