-- A store is a system that holds data: here the Kafka broker that this demo started.
CREATE STORE IF NOT EXISTS demo_kafka WITH ('type' = KAFKA, 'uris' = '$bootstrap', 'tls.disabled' = TRUE);

USE STORE demo_kafka;

-- Its entities are topics; a generator has begun to write page views and users into two of them.
LIST ENTITIES;

-- A stream gives a topic columns, types and an event time. Nothing is copied.
CREATE STREAM IF NOT EXISTS pageviews (viewtime BIGINT, userid VARCHAR, pageid VARCHAR)
WITH ('topic' = 'pageviews', 'value.format' = 'json', 'timestamp' = 'viewtime');

CREATE STREAM IF NOT EXISTS users (
    registertime BIGINT, userid VARCHAR, regionid VARCHAR, gender VARCHAR,
    interests ARRAY<VARCHAR>, contactinfo STRUCT<phone VARCHAR, city VARCHAR, "state" VARCHAR, zipcode VARCHAR>
) WITH ('topic' = 'users', 'value.format' = 'json', 'timestamp' = 'registertime');

-- A SELECT on a stream runs until its LIMIT, or Ctrl-C; without LIMIT psql shows nothing, for it waits for the end.
SELECT userid, pageid FROM pageviews LIMIT 3;

-- A continuous query: filter one topic into a new one, exactly once.
CREATE STREAM pageviews_of_user_1 AS
SELECT viewtime, pageid FROM pageviews WHERE userid = 'User_1';

-- A materialized view is an ordinary PostgreSQL table to its readers; Spark keeps it current.
CREATE MATERIALIZED VIEW views_per_10s AS
SELECT window_start, window_end, pageid, count(*) AS views
FROM TUMBLE(pageviews, SIZE 10 SECONDS) WITH ('starting.position' = 'earliest')
GROUP BY window_start, window_end, pageid;

-- Join two streams on time: page views with what the same user wrote about themselves within 10 seconds.
CREATE MATERIALIZED VIEW viewer_cities AS
SELECT v.viewtime, v.userid, v.pageid, u.regionid, u.contactinfo->city AS city
FROM pageviews v WITH ('starting.position' = 'earliest', 'source.allow.latency.millis' = 1000)
JOIN users u WITH ('starting.position' = 'earliest', 'source.allow.latency.millis' = 1000) WITHIN 10 SECONDS
ON v.userid = u.userid;

-- What runs now:
LIST QUERIES;
