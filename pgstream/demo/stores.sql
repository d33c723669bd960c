-- Another kind of store: the PostgreSQL of a shop, where orders come, change and go while you look.
CREATE STORE IF NOT EXISTS demo_shop WITH ('type' = POSTGRESQL, 'uris' = '$shop', 'postgres.username' = 'pgstream',
  'postgres.password' = '$password', 'tls.disabled' = TRUE);

UPDATE STORE demo_shop WITH ('uris' = '$shop');

LIST ENTITIES IN public IN STORE demo_shop;

-- A changelog of a table: the rows that it has, then what changes in it, by logical replication.
CREATE CHANGELOG IF NOT EXISTS orders WITH ('store' = demo_shop, 'postgresql.table.name' = 'orders');

CREATE MATERIALIZED VIEW orders_by_status AS
SELECT status, count(*) AS orders, sum(price) AS total FROM orders GROUP BY status;

-- A third kind: data streams of Kinesis, here a double in this process. Page views go there from Kafka.
CREATE STORE IF NOT EXISTS demo_kinesis WITH ('type' = KINESIS, 'uris' = '$kinesis', 'kinesis.region' = 'us-east-1',
  'kinesis.access_key_id' = 'demo', 'kinesis.secret_access_key' = 'demo');

CREATE STREAM pageviews_kinesis WITH ('store' = demo_kinesis, 'topic.shards' = 2) AS SELECT * FROM pageviews;
