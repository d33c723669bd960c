-- All databases and roles as commit e0d9861 left them, whose catalogue has revision 0001: before roles, grants, users,
-- system tables, and with the rows of views in tables of a hidden schema. Made by pg_dumpall -r and pg_dump -C --inserts.
-- test_old_catalogue.py restores it; setting secret_key is "of the fixture", the password of admin "first's password".
SET default_transaction_read_only = off;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
CREATE ROLE admin;
ALTER ROLE admin WITH NOSUPERUSER INHERIT NOCREATEROLE NOCREATEDB LOGIN NOREPLICATION NOBYPASSRLS PASSWORD 'SCRAM-SHA-256$4096:smfuvljZ5xt3plaO1g7kFA==$et5Rjq1lB0cyWDCxTMTzFBB/jRRcplxBRa2st56w0JM=:3Nvc83mQJSuxjoRoia87t820XcViB5N3GLodhUcAuHU=';
CREATE ROLE orgadmin;
ALTER ROLE orgadmin WITH NOSUPERUSER INHERIT NOCREATEROLE NOCREATEDB NOLOGIN NOREPLICATION NOBYPASSRLS;
CREATE ROLE pgstream_worker;
ALTER ROLE pgstream_worker WITH NOSUPERUSER NOINHERIT NOCREATEROLE NOCREATEDB LOGIN NOREPLICATION NOBYPASSRLS PASSWORD 'SCRAM-SHA-256$4096:Nv18Z9rS1PdLNWyr+bzkmw==$lNaZi4ZEcK9B5bh7rNKWpxxMRcrJZV7Z5Lyp4KLjFpE=:X+SwcK+m99WW6sFXiDOJYFRQPijXdnQb4sZNkLIKsbs=';
CREATE ROLE securityadmin;
ALTER ROLE securityadmin WITH NOSUPERUSER INHERIT NOCREATEROLE NOCREATEDB NOLOGIN NOREPLICATION NOBYPASSRLS;
CREATE ROLE sysadmin;
ALTER ROLE sysadmin WITH NOSUPERUSER INHERIT NOCREATEROLE NOCREATEDB NOLOGIN NOREPLICATION NOBYPASSRLS;
CREATE ROLE useradmin;
ALTER ROLE useradmin WITH NOSUPERUSER INHERIT NOCREATEROLE NOCREATEDB NOLOGIN NOREPLICATION NOBYPASSRLS;
GRANT orgadmin TO admin WITH INHERIT TRUE GRANTED BY pgstream;
GRANT securityadmin TO orgadmin WITH INHERIT TRUE GRANTED BY pgstream;
GRANT sysadmin TO orgadmin WITH INHERIT TRUE GRANTED BY pgstream;
GRANT useradmin TO securityadmin WITH INHERIT TRUE GRANTED BY pgstream;
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE DATABASE pgstream_control WITH TEMPLATE = template0 ENCODING = 'UTF8';
ALTER DATABASE pgstream_control OWNER TO pgstream;
\connect pgstream_control
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
ALTER TABLE public.alembic_version OWNER TO pgstream;
CREATE TABLE public.databases (
    name text NOT NULL,
    owner text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE public.databases OWNER TO pgstream;
CREATE TABLE public.meta (
    key text NOT NULL,
    value text NOT NULL
);
ALTER TABLE public.meta OWNER TO pgstream;
CREATE TABLE public.queries (
    id text NOT NULL,
    name text,
    version integer NOT NULL,
    kind text NOT NULL,
    sql text NOT NULL,
    plan bytea NOT NULL,
    owner text NOT NULL,
    database text NOT NULL,
    sources json NOT NULL,
    sink text NOT NULL,
    stores json NOT NULL,
    intended text NOT NULL,
    actual text NOT NULL,
    message text NOT NULL,
    attempt integer NOT NULL,
    settings json NOT NULL,
    progress json NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE public.queries OWNER TO pgstream;
CREATE TABLE public.relations (
    id text NOT NULL,
    database text NOT NULL,
    schema text NOT NULL,
    name text NOT NULL,
    kind text NOT NULL,
    columns json NOT NULL,
    owner text NOT NULL,
    primary_key json NOT NULL,
    store text,
    entity text,
    properties json NOT NULL,
    query text,
    description text,
    state text NOT NULL,
    mode text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE public.relations OWNER TO pgstream;
CREATE TABLE public.schemas (
    database text NOT NULL,
    name text NOT NULL,
    owner text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE public.schemas OWNER TO pgstream;
CREATE TABLE public.store_secrets (
    store_id text NOT NULL,
    name text NOT NULL,
    value bytea NOT NULL
);
ALTER TABLE public.store_secrets OWNER TO pgstream;
CREATE TABLE public.stores (
    id text NOT NULL,
    name text NOT NULL,
    type text NOT NULL,
    options json NOT NULL,
    owner text NOT NULL,
    state text NOT NULL,
    message text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE public.stores OWNER TO pgstream;
INSERT INTO public.alembic_version VALUES ('0001');
INSERT INTO public.databases VALUES ('main', 'sysadmin', '2026-11-21 22:32:16.940436+00');
INSERT INTO public.databases VALUES ('Sales', 'sysadmin', '2026-11-21 22:32:17.231238+00');
INSERT INTO public.meta VALUES ('key_check', 'gAAAAABrAhvw_c701r_wJKvoMp9NhYuiCQt6BklBJfQNroGsmAJ7Ms8XH9cPJhXEifEYdK4urtvJ5ycFOsg2QDjcD5GVPxPZew==');
INSERT INTO public.meta VALUES ('worker_password', 'gAAAAABrAhvwi7BZQhLEVSqjRr754YCanGLnteZXZ0espjspz1gW7U6Hh7tFpTfQzP4rmjt12j7Wbo2O7uuFSwXFpLIcwXhX9934hJokxXFbTjB4mWxpVx43pegHRZOPwFDI9L9SEjAD');
INSERT INTO public.meta VALUES ('first_database', 'main');
INSERT INTO public.queries VALUES ('f12152d6-c24c-49e5-975f-85cfb4c08d98', NULL, 1, 'create_materialized_view', 'CREATE …', '\x7b22726f6f74223a207b7d2c202273696e6b223a207b2274797065223a202276696577222c20226d6f6465223a2022757073657274222c20226b6579223a205b22757365726964225d2c20227461626c65223a202274227d7d', 'sysadmin', 'main', '["main.public.pageviews"]', 'main.public.counts', '["k"]', 'running', 'running', '', 2, '{}', '{}', '2026-11-21 22:32:18.087936+00', '2026-11-21 22:32:18.153836+00');
INSERT INTO public.queries VALUES ('475db242-005f-4caa-a38c-229a849579c1', NULL, 1, 'create_materialized_view', 'CREATE …', '\x7b22726f6f74223a207b7d2c202273696e6b223a207b2274797065223a202276696577222c20226d6f6465223a2022757073657274222c20226b6579223a205b22757365726964225d2c20227461626c65223a202274227d7d', 'sysadmin', 'main', '["main.public.pageviews"]', 'main.public.ended', '["k"]', 'terminated', 'terminated', '', 0, '{}', '{}', '2026-11-21 22:32:18.159544+00', '2026-11-21 22:32:18.195869+00');
INSERT INTO public.relations VALUES ('e67e1fde-3fa7-4604-aeaf-b3e02521423d', 'main', 'public', 'pageviews', 'stream', '[["viewtime", "BIGINT", true], ["userid", "VARCHAR", true], ["tags", "ARRAY<VARCHAR>", true], ["who", "STRUCT<\"Id\" BIGINT>", true]]', 'sysadmin', '[]', NULL, 'pageviews', '{"value.format": "json"}', NULL, NULL, 'created', '', '2026-11-21 22:32:17.995191+00', '2026-11-21 22:32:17.995191+00');
INSERT INTO public.relations VALUES ('d0331c48-a573-4d27-9368-85aa1ea3aacc', 'Sales', 'public', 'in sales', 'changelog', '[["viewtime", "BIGINT", true], ["userid", "VARCHAR", true], ["tags", "ARRAY<VARCHAR>", true], ["who", "STRUCT<\"Id\" BIGINT>", true]]', 'sysadmin', '["userid"]', 'k', 'in sales', '{"value.format": "json"}', NULL, NULL, 'created', '', '2026-11-21 22:32:18.039186+00', '2026-11-21 22:32:18.039186+00');
INSERT INTO public.relations VALUES ('24645cc9-b4bc-4e9e-a78b-9f0d3a95def6', 'main', 'public', 'counts', 'materialized_view', '[["userid", "VARCHAR", true], ["n", "BIGINT", true]]', 'sysadmin', '["userid"]', NULL, NULL, '{}', 'f12152d6-c24c-49e5-975f-85cfb4c08d98', NULL, 'created', 'upsert', '2026-11-21 22:32:18.087936+00', '2026-11-21 22:32:18.087936+00');
INSERT INTO public.relations VALUES ('0962f922-218e-4506-a10e-a6a242d059cb', 'main', 'public', 'gone_by', 'materialized_view', '[["userid", "VARCHAR", true], ["n", "BIGINT", true]]', 'sysadmin', '["userid"]', NULL, NULL, '{}', '475db242-005f-4caa-a38c-229a849579c1', NULL, 'created', 'upsert', '2026-11-21 22:32:18.159544+00', '2026-11-21 22:32:18.159544+00');
INSERT INTO public.schemas VALUES ('main', 'public', 'sysadmin', '2026-11-21 22:32:16.940436+00');
INSERT INTO public.schemas VALUES ('Sales', 'public', 'sysadmin', '2026-11-21 22:32:17.231238+00');
INSERT INTO public.schemas VALUES ('main', 'Odd "schema"', 'sysadmin', '2026-11-21 22:32:17.723641+00');
INSERT INTO public.store_secrets VALUES ('85b0dca9-3ce4-4edc-83d2-118185fdeb6d', 'kafka.sasl.password', '\x67414141414142724168767873784c4133344e714245472d5a315267356a31353365513536316a576b346246314e6a374f4a4230366a69457178624d61633634675438496a36717671514a385562534f53694d4861477563425071616a55415f78413d3d');
INSERT INTO public.stores VALUES ('85b0dca9-3ce4-4edc-83d2-118185fdeb6d', 'k', 'kafka', '{"uris": "127.0.0.1:1", "tls.disabled": "true"}', 'sysadmin', 'ready', '', '2026-11-21 22:32:17.762988+00', '2026-11-21 22:32:17.762988+00');
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.databases
    ADD CONSTRAINT databases_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.meta
    ADD CONSTRAINT meta_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.queries
    ADD CONSTRAINT queries_name_version_key UNIQUE (name, version);
ALTER TABLE ONLY public.queries
    ADD CONSTRAINT queries_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.relations
    ADD CONSTRAINT relations_database_schema_name_key UNIQUE (database, schema, name);
ALTER TABLE ONLY public.relations
    ADD CONSTRAINT relations_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.schemas
    ADD CONSTRAINT schemas_pkey PRIMARY KEY (database, name);
ALTER TABLE ONLY public.store_secrets
    ADD CONSTRAINT store_secrets_pkey PRIMARY KEY (store_id, name);
ALTER TABLE ONLY public.stores
    ADD CONSTRAINT stores_name_key UNIQUE (name);
ALTER TABLE ONLY public.stores
    ADD CONSTRAINT stores_pkey PRIMARY KEY (id);
CREATE INDEX ix_queries_actual ON public.queries USING btree (actual);
ALTER TABLE ONLY public.relations
    ADD CONSTRAINT relations_database_schema_fkey FOREIGN KEY (database, schema) REFERENCES public.schemas(database, name);
ALTER TABLE ONLY public.relations
    ADD CONSTRAINT relations_store_fkey FOREIGN KEY (store) REFERENCES public.stores(name);
ALTER TABLE ONLY public.schemas
    ADD CONSTRAINT schemas_database_fkey FOREIGN KEY (database) REFERENCES public.databases(name) ON DELETE CASCADE;
ALTER TABLE ONLY public.store_secrets
    ADD CONSTRAINT store_secrets_store_id_fkey FOREIGN KEY (store_id) REFERENCES public.stores(id) ON DELETE CASCADE;
REVOKE CONNECT,TEMPORARY ON DATABASE pgstream_control FROM PUBLIC;
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE DATABASE main WITH TEMPLATE = template0 ENCODING = 'UTF8';
ALTER DATABASE main OWNER TO pgstream;
\connect main
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA "Odd ""schema""";
ALTER SCHEMA "Odd ""schema""" OWNER TO pgstream;
CREATE SCHEMA pgstream_state;
ALTER SCHEMA pgstream_state OWNER TO pgstream_worker;
CREATE FUNCTION pgstream_state.unreadable(kind text, name text) RETURNS SETOF boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    AS $$
BEGIN
    RAISE EXCEPTION '% "%" cannot be read as a table', kind, name USING
        ERRCODE = '0A000',
        HINT = 'A SELECT that pgstream can run streams it: send it as a statement of its own, outside functions, '
            'COPY and cursors. A materialized view over it can be read everywhere.';
END $$;
ALTER FUNCTION pgstream_state.unreadable(kind text, name text) OWNER TO pgstream;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE pgstream_state.ledger (
    query uuid NOT NULL,
    sink text DEFAULT ''::text NOT NULL,
    batch bigint NOT NULL,
    attempt integer NOT NULL
);
ALTER TABLE pgstream_state.ledger OWNER TO pgstream_worker;
CREATE TABLE pgstream_state.v_0962f922218e4506a10ea6a242d059cb (
    userid character varying,
    n bigint
);
ALTER TABLE pgstream_state.v_0962f922218e4506a10ea6a242d059cb OWNER TO pgstream_worker;
CREATE TABLE pgstream_state.v_24645cc9b4bc4e9ea78b9f0d3a95def6 (
    userid character varying,
    n bigint
);
ALTER TABLE pgstream_state.v_24645cc9b4bc4e9ea78b9f0d3a95def6 OWNER TO pgstream_worker;
CREATE VIEW public.counts AS
 SELECT userid,
    n
   FROM pgstream_state.v_24645cc9b4bc4e9ea78b9f0d3a95def6;
ALTER VIEW public.counts OWNER TO pgstream;
COMMENT ON VIEW public.counts IS 'materialized view';
CREATE VIEW public.gone_by AS
 SELECT userid,
    n
   FROM pgstream_state.v_0962f922218e4506a10ea6a242d059cb;
ALTER VIEW public.gone_by OWNER TO pgstream;
COMMENT ON VIEW public.gone_by IS 'materialized view';
CREATE TABLE public.mine (
    i integer
);
ALTER TABLE public.mine OWNER TO admin;
CREATE VIEW public.pageviews AS
 SELECT NULL::bigint AS viewtime,
    NULL::character varying AS userid,
    NULL::character varying[] AS tags,
    NULL::jsonb AS who
   FROM pgstream_state.unreadable('stream'::text, 'main.public.pageviews'::text) unreadable(unreadable);
ALTER VIEW public.pageviews OWNER TO pgstream;
COMMENT ON VIEW public.pageviews IS 'stream';
INSERT INTO pgstream_state.ledger VALUES ('475db242-005f-4caa-a38c-229a849579c1', '', -1, 0);
INSERT INTO pgstream_state.ledger VALUES ('f12152d6-c24c-49e5-975f-85cfb4c08d98', '', 41, 2);
INSERT INTO pgstream_state.v_24645cc9b4bc4e9ea78b9f0d3a95def6 VALUES ('ann', 7);
INSERT INTO pgstream_state.v_24645cc9b4bc4e9ea78b9f0d3a95def6 VALUES ('bob', 1);
INSERT INTO public.mine VALUES (1);
ALTER TABLE ONLY pgstream_state.ledger
    ADD CONSTRAINT ledger_pkey PRIMARY KEY (query);
CREATE UNIQUE INDEX v_0962f922218e4506a10ea6a242d059cb_key ON pgstream_state.v_0962f922218e4506a10ea6a242d059cb USING btree (userid) NULLS NOT DISTINCT;
CREATE UNIQUE INDEX v_24645cc9b4bc4e9ea78b9f0d3a95def6_key ON pgstream_state.v_24645cc9b4bc4e9ea78b9f0d3a95def6 USING btree (userid) NULLS NOT DISTINCT;
REVOKE CONNECT,TEMPORARY ON DATABASE main FROM PUBLIC;
GRANT CONNECT,TEMPORARY ON DATABASE main TO sysadmin;
GRANT CONNECT,TEMPORARY ON DATABASE main TO pgstream_worker;
GRANT ALL ON SCHEMA "Odd ""schema""" TO sysadmin;
REVOKE USAGE ON SCHEMA public FROM PUBLIC;
GRANT ALL ON SCHEMA public TO sysadmin;
GRANT SELECT ON TABLE public.counts TO sysadmin;
GRANT SELECT ON TABLE public.gone_by TO sysadmin;
GRANT SELECT ON TABLE public.pageviews TO sysadmin;
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE DATABASE "Sales" WITH TEMPLATE = template0 ENCODING = 'UTF8';
ALTER DATABASE "Sales" OWNER TO pgstream;
\connect "Sales"
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA pgstream_state;
ALTER SCHEMA pgstream_state OWNER TO pgstream_worker;
CREATE FUNCTION pgstream_state.unreadable(kind text, name text) RETURNS SETOF boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog'
    AS $$
BEGIN
    RAISE EXCEPTION '% "%" cannot be read as a table', kind, name USING
        ERRCODE = '0A000',
        HINT = 'A SELECT that pgstream can run streams it: send it as a statement of its own, outside functions, '
            'COPY and cursors. A materialized view over it can be read everywhere.';
END $$;
ALTER FUNCTION pgstream_state.unreadable(kind text, name text) OWNER TO pgstream;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE pgstream_state.ledger (
    query uuid NOT NULL,
    sink text DEFAULT ''::text NOT NULL,
    batch bigint NOT NULL,
    attempt integer NOT NULL
);
ALTER TABLE pgstream_state.ledger OWNER TO pgstream_worker;
CREATE VIEW public."in sales" AS
 SELECT NULL::bigint AS viewtime,
    NULL::character varying AS userid,
    NULL::character varying[] AS tags,
    NULL::jsonb AS who
   FROM pgstream_state.unreadable('changelog'::text, '"Sales".public."in sales"'::text) unreadable(unreadable);
ALTER VIEW public."in sales" OWNER TO pgstream;
COMMENT ON VIEW public."in sales" IS 'changelog of "in sales" in store k';
ALTER TABLE ONLY pgstream_state.ledger
    ADD CONSTRAINT ledger_pkey PRIMARY KEY (query);
REVOKE CONNECT,TEMPORARY ON DATABASE "Sales" FROM PUBLIC;
GRANT CONNECT,TEMPORARY ON DATABASE "Sales" TO sysadmin;
GRANT CONNECT,TEMPORARY ON DATABASE "Sales" TO pgstream_worker;
REVOKE USAGE ON SCHEMA public FROM PUBLIC;
GRANT ALL ON SCHEMA public TO sysadmin;
GRANT SELECT ON TABLE public."in sales" TO sysadmin;
