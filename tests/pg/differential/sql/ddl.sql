CREATE TABLE items (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL, price numeric(10,2) DEFAULT 0 CHECK (price >= 0))

CREATE TABLE items (id int)

CREATE TABLE IF NOT EXISTS items (id int)

CREATE TABLE parts (item int REFERENCES items ON DELETE CASCADE, n int, PRIMARY KEY (item, n))

ALTER TABLE items ADD COLUMN note varchar(20), ADD COLUMN made date DEFAULT '2024-01-01'

ALTER TABLE items ALTER note TYPE text, ALTER note SET DEFAULT 'none'

ALTER TABLE items RENAME COLUMN note TO remark

ALTER TABLE items ADD CONSTRAINT cheap CHECK (price < 1000) NOT VALID

ALTER TABLE items VALIDATE CONSTRAINT cheap

ALTER TABLE items DROP COLUMN nothing

ALTER TABLE nowhere ADD a int

ALTER TABLE IF EXISTS nowhere ADD a int

COMMENT ON TABLE items IS 'what we sell'

COMMENT ON COLUMN items.price IS 'in money'

SELECT obj_description('items'::regclass), col_description('items'::regclass, 3)

CREATE INDEX items_name ON items (name)

CREATE UNIQUE INDEX CONCURRENTLY items_lower ON items (lower(name))

DROP INDEX items_lower

DROP INDEX nowhere

CREATE VIEW cheap_items AS SELECT id, name FROM items WHERE price < 10

CREATE OR REPLACE VIEW cheap_items AS SELECT id, name, price FROM items WHERE price < 20

CREATE OR REPLACE VIEW cheap_items AS SELECT name FROM items

SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, ordinal_position

SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1

DROP TABLE items

DROP VIEW cheap_items

CREATE TABLE copied AS SELECT 1 AS a, 'x'::text AS b

CREATE TABLE like_items (LIKE items INCLUDING ALL)

CREATE TABLE parted (k int, v text) PARTITION BY RANGE (k)

CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10)

INSERT INTO parted VALUES (1, 'in'), (11, 'out')

CREATE TABLE child () INHERITS (copied)

CREATE UNLOGGED TABLE quick (a int)

CREATE SEQUENCE counter START 5 INCREMENT 2

SELECT nextval('counter'), nextval('counter'), currval('counter')

ALTER SEQUENCE counter RESTART

SELECT setval('counter', 100, false), nextval('counter')

DROP SEQUENCE counter, nowhere

TRUNCATE copied, quick RESTART IDENTITY

DROP TABLE copied

DROP TABLE copied CASCADE

DROP TABLE IF EXISTS nowhere, nowhere_else

CREATE STATISTICS pairs ON k, v FROM parted

CREATE RULE nothing AS ON DELETE TO quick DO INSTEAD NOTHING

DELETE FROM quick

GRANT SELECT ON items TO PUBLIC

REVOKE SELECT ON items FROM PUBLIC

GRANT SELECT ON items TO nobody_here

ALTER TABLE items OWNER TO nobody_here

REINDEX TABLE items

ANALYZE items

VACUUM items

CLUSTER items USING items_pkey

CREATE EXTENSION nowhere

CREATE GROUP another

SECURITY LABEL ON TABLE items IS 'x'

DROP TABLE items CASCADE
