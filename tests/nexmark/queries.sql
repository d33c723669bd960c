-- Each query of Nexmark: its name and what it asks, the SELECT of pgstream, and, where another text is needed, after
-- "-- PostgreSQL" that over tables of the same rows, after "-- Flink" that of Flink SQL. {ttl} stands for QUERY WITH
-- ('state.ttl.millis' = …). Windows that are final only when they close are asked of PostgreSQL up to the watermark, 10 s
-- behind the last event.
--
-- The sixth averages the last ten winning bids of a seller as they are now: as an OVER of rows that may be taken back,
-- which is how Flink's suite writes it, it is refused there and here. The twelfth counts in windows of the clock; here of
-- the time at which the broker got the records, so that two runs agree.

-- q0 pass through
SELECT auction, bidder, price, date_time, extra FROM bid

-- q1 currency conversion
SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid

-- q2 selection
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0

-- q3 local item suggestion
SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA') {ttl}
-- PostgreSQL
SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')

-- q4 average price for a category
SELECT category, AVG(final) AS average FROM (
  SELECT a.id, a.category, MAX(b.price) AS final FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category) q
GROUP BY category {ttl}
-- PostgreSQL
SELECT category, TRUNC(AVG(final))::bigint AS average FROM (
  SELECT a.id, a.category, MAX(b.price) AS final FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category) q
GROUP BY category

-- q5 hot items
SELECT n.auction, n.num, n.window_start FROM (
  SELECT auction, COUNT(*) AS num, window_start, window_end FROM HOP(bid, SIZE 10 SECONDS, ADVANCE BY 2 SECONDS)
  GROUP BY auction, window_start, window_end) n
JOIN (
  SELECT MAX(num) AS maxn, window_start, window_end FROM (
    SELECT auction, COUNT(*) AS num, window_start, window_end FROM HOP(bid, SIZE 10 SECONDS, ADVANCE BY 2 SECONDS)
    GROUP BY auction, window_start, window_end) c
  GROUP BY window_start, window_end) m
ON n.window_start = m.window_start AND n.window_end = m.window_end WHERE n.num >= m.maxn
-- PostgreSQL
SELECT auction, num, window_start FROM (
  SELECT auction, COUNT(*) AS num, window_start, MAX(COUNT(*)) OVER (PARTITION BY window_start) AS maxn
  FROM bid CROSS JOIN LATERAL GENERATE_SERIES(date_bin('2 s', date_time, '2000-01-01') - INTERVAL '8 s',
    date_bin('2 s', date_time, '2000-01-01'), '2 s') AS w(window_start)
  GROUP BY auction, window_start) c
WHERE num = maxn AND window_start + INTERVAL '20 s' <= (SELECT MAX(date_time) FROM bid)
-- Flink
SELECT n.auction, n.num, n.window_start FROM (
  SELECT auction, COUNT(*) AS num, window_start, window_end
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY auction, window_start, window_end) n
JOIN (
  SELECT MAX(num) AS maxn, window_start, window_end FROM (
    SELECT auction, COUNT(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end) c
  GROUP BY window_start, window_end) m
ON n.window_start = m.window_start AND n.window_end = m.window_end AND n.num >= m.maxn

-- q6 average selling price by seller
SELECT seller, AVG(price) AS average FROM (
  SELECT seller, price, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY bid_time DESC, id DESC) AS nth FROM (
    SELECT a.id, a.seller, b.price, b.date_time AS bid_time,
      ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time ASC) AS rn
    FROM auction a JOIN bid b ON a.id = b.auction WHERE b.date_time BETWEEN a.date_time AND a.expires) w
  WHERE rn <= 1) s
WHERE nth <= 10 GROUP BY seller {ttl}
-- PostgreSQL
SELECT seller, TRUNC(AVG(price))::bigint AS average FROM (
  SELECT seller, price, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY bid_time DESC, id DESC) AS nth FROM (
    SELECT a.id, a.seller, b.price, b.date_time AS bid_time,
      ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time ASC) AS rn
    FROM auction a JOIN bid b ON a.id = b.auction WHERE b.date_time BETWEEN a.date_time AND a.expires) w
  WHERE rn <= 1) s
WHERE nth <= 10 GROUP BY seller

-- q7 highest bid
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra FROM bid b
JOIN (SELECT MAX(price) AS maxprice, window_start, window_end FROM TUMBLE(bid, SIZE 10 SECONDS)
  GROUP BY window_start, window_end) m
WITHIN 10 SECONDS ON b.price = m.maxprice WHERE b.date_time >= m.window_start AND b.date_time < m.window_end
-- PostgreSQL
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra FROM bid b
JOIN (SELECT MAX(price) AS maxprice, date_bin('10 s', date_time, '2000-01-01') AS window_start FROM bid
  GROUP BY date_bin('10 s', date_time, '2000-01-01')) m
ON b.price = m.maxprice AND date_bin('10 s', b.date_time, '2000-01-01') = m.window_start
WHERE window_start + INTERVAL '20 s' <= (SELECT MAX(date_time) FROM bid)
-- Flink
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra FROM bid b
JOIN (SELECT MAX(price) AS maxprice, window_start, window_end
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND)) GROUP BY window_start, window_end) m
ON b.price = m.maxprice WHERE b.date_time >= m.window_start AND b.date_time < m.window_end

-- q8 monitor new users
SELECT p.id, p.name, p.window_start FROM (
  SELECT id, name, window_start, window_end FROM TUMBLE(person, SIZE 10 SECONDS)
  GROUP BY id, name, window_start, window_end) p
JOIN (
  SELECT seller, window_start, window_end FROM TUMBLE(auction, SIZE 10 SECONDS)
  GROUP BY seller, window_start, window_end) a
ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
-- PostgreSQL
SELECT DISTINCT p.id, p.name, date_bin('10 s', p.date_time, '2000-01-01') FROM person p JOIN auction a ON p.id = a.seller
AND date_bin('10 s', p.date_time, '2000-01-01') = date_bin('10 s', a.date_time, '2000-01-01')
WHERE date_bin('10 s', p.date_time, '2000-01-01') + INTERVAL '20 s' <= LEAST((SELECT MAX(date_time) FROM person),
  (SELECT MAX(date_time) FROM auction))
-- Flink
SELECT p.id, p.name, p.window_start FROM (
  SELECT id, name, window_start, window_end FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
  GROUP BY id, name, window_start, window_end) p
JOIN (
  SELECT seller, window_start, window_end FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
  GROUP BY seller, window_start, window_end) a
ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end

-- q9 winning bids
SELECT id, item, seller, category, auction, bidder, price, bid_time FROM (
  SELECT a.id, a.item, a.seller, a.category, b.auction, b.bidder, b.price, b.date_time AS bid_time,
    ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time ASC) AS rn
  FROM auction a JOIN bid b ON a.id = b.auction WHERE b.date_time BETWEEN a.date_time AND a.expires) w
WHERE rn <= 1 {ttl}
-- PostgreSQL
SELECT id, item, seller, category, auction, bidder, price, bid_time FROM (
  SELECT a.id, a.item, a.seller, a.category, b.auction, b.bidder, b.price, b.date_time AS bid_time,
    ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time ASC) AS rn
  FROM auction a JOIN bid b ON a.id = b.auction WHERE b.date_time BETWEEN a.date_time AND a.expires) w
WHERE rn <= 1

-- q10 log, by day and minute
SELECT auction, bidder, price, date_time, extra, DATE_FORMAT(date_time, 'yyyy-MM-dd') AS dt,
  DATE_FORMAT(date_time, 'HH:mm') AS hm FROM bid
-- PostgreSQL
SELECT auction, bidder, price, date_time, extra, TO_CHAR(date_time, 'YYYY-MM-DD'), TO_CHAR(date_time, 'HH24:MI') FROM bid

-- q11 user sessions
SELECT bidder, COUNT(*) AS bids, window_start, window_end FROM SESSION(bid, GAP 10 SECONDS)
GROUP BY bidder, window_start, window_end
-- PostgreSQL
SELECT bidder, COUNT(*), MIN(date_time), MAX(date_time) + INTERVAL '10 s' FROM (
  SELECT bidder, date_time, COUNT(*) FILTER (WHERE new) OVER (PARTITION BY bidder ORDER BY date_time) AS nth FROM (
    SELECT bidder, date_time, date_time > COALESCE(LAG(date_time) OVER (PARTITION BY bidder ORDER BY date_time),
      '-infinity') + INTERVAL '10 s' AS new FROM bid) s) t
GROUP BY bidder, nth HAVING MAX(date_time) + INTERVAL '10 s' <= (SELECT MAX(date_time) - INTERVAL '10 s' FROM bid)
-- Flink
SELECT bidder, COUNT(*) AS bids, window_start, window_end
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end

-- q12 bids by the time of arrival
SELECT bidder, COUNT(*) AS bids, window_start, window_end FROM TUMBLE(bid_arrival, SIZE 10 SECONDS)
GROUP BY bidder, window_start, window_end
-- PostgreSQL
SELECT bidder, COUNT(*), date_bin('10 s', arrived, '2000-01-01') AS w, date_bin('10 s', arrived, '2000-01-01') + INTERVAL '10 s'
FROM (SELECT bidder, date_time + {arrival} AS arrived FROM bid) b GROUP BY bidder, w
-- Flink
SELECT bidder, COUNT(*) AS bids, window_start, window_end
FROM TABLE(TUMBLE(TABLE bid_arrival, DESCRIPTOR(arrived), INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end

-- q13 bounded side input
SELECT b.auction, b.bidder, b.price, b.date_time, s.label FROM bid b JOIN side_input s ON MOD(b.auction, 100) = s.number
-- Flink
SELECT b.auction, b.bidder, b.price, b.date_time, s.label FROM bid b
JOIN side_input FOR SYSTEM_TIME AS OF b.now_time AS s ON MOD(b.auction, 100) = s.number

-- q14 calculation
SELECT auction, bidder, 0.908 * price AS price,
  CASE WHEN HOUR(date_time) >= 8 AND HOUR(date_time) <= 18 THEN 'day'
    WHEN HOUR(date_time) <= 6 OR HOUR(date_time) >= 20 THEN 'night' ELSE 'other' END AS bid_time_type,
  date_time, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
-- PostgreSQL
SELECT auction, bidder, 0.908 * price,
  CASE WHEN EXTRACT(HOUR FROM date_time) BETWEEN 8 AND 18 THEN 'day'
    WHEN EXTRACT(HOUR FROM date_time) <= 6 OR EXTRACT(HOUR FROM date_time) >= 20 THEN 'night' ELSE 'other' END,
  date_time, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', ''))
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000

-- q15 bidding statistics
SELECT DATE_FORMAT(date_time, 'yyyy-MM-dd') AS dt, COUNT(*) AS total_bids,
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  COUNT(DISTINCT bidder) AS total_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
  COUNT(DISTINCT auction) AS total_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid GROUP BY DATE_FORMAT(date_time, 'yyyy-MM-dd')
-- PostgreSQL
SELECT TO_CHAR(date_time, 'YYYY-MM-DD'), COUNT(*), COUNT(*) FILTER (WHERE price < 10000),
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000), COUNT(*) FILTER (WHERE price >= 1000000),
  COUNT(DISTINCT bidder), COUNT(DISTINCT bidder) FILTER (WHERE price < 10000), COUNT(DISTINCT auction),
  COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000)
FROM bid GROUP BY TO_CHAR(date_time, 'YYYY-MM-DD')

-- q16 channel statistics
SELECT channel, DATE_FORMAT(date_time, 'yyyy-MM-dd') AS dt, MAX(DATE_FORMAT(date_time, 'HH:mm')) AS hm,
  COUNT(*) AS total_bids, COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(DISTINCT bidder) AS total_bidders, COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
  COUNT(DISTINCT auction) AS total_auctions
FROM bid GROUP BY channel, DATE_FORMAT(date_time, 'yyyy-MM-dd')
-- PostgreSQL
SELECT channel, TO_CHAR(date_time, 'YYYY-MM-DD'), MAX(TO_CHAR(date_time, 'HH24:MI')), COUNT(*),
  COUNT(*) FILTER (WHERE price < 10000), COUNT(DISTINCT bidder),
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000), COUNT(DISTINCT auction)
FROM bid GROUP BY channel, TO_CHAR(date_time, 'YYYY-MM-DD')

-- q17 auction statistics
SELECT auction, DATE_FORMAT(date_time, 'yyyy-MM-dd') AS dt, COUNT(*) AS total_bids,
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  MIN(price) AS min_price, MAX(price) AS max_price, AVG(price) AS avg_price, SUM(price) AS sum_price
FROM bid GROUP BY auction, DATE_FORMAT(date_time, 'yyyy-MM-dd')
-- PostgreSQL
SELECT auction, TO_CHAR(date_time, 'YYYY-MM-DD'), COUNT(*), COUNT(*) FILTER (WHERE price < 10000),
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000), COUNT(*) FILTER (WHERE price >= 1000000),
  MIN(price), MAX(price), TRUNC(AVG(price))::bigint, SUM(price)
FROM bid GROUP BY auction, TO_CHAR(date_time, 'YYYY-MM-DD')

-- q18 last bid
SELECT auction, bidder, price, channel, url, date_time, extra FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS rn FROM bid) b
WHERE rn <= 1

-- q19 auction top 10
SELECT auction, bidder, price, channel, date_time, rn FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS rn FROM bid) b
WHERE rn <= 10

-- q20 bids of a category, with their auctions
SELECT b.auction, b.bidder, b.price, b.channel, b.date_time, a.item, a.initial_bid, a.seller, a.expires
FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10 {ttl}
-- PostgreSQL
SELECT b.auction, b.bidder, b.price, b.channel, b.date_time, a.item, a.initial_bid, a.seller, a.expires
FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10

-- q21 channel number
SELECT auction, bidder, price, channel, CASE WHEN LOWER(channel) = 'apple' THEN '0' WHEN LOWER(channel) = 'google' THEN '1'
  WHEN LOWER(channel) = 'facebook' THEN '2' WHEN LOWER(channel) = 'baidu' THEN '3'
  ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL
  OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')
-- PostgreSQL
SELECT auction, bidder, price, channel, CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
  WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE SUBSTRING(url FROM 'channel_id=([^&]*)') END
FROM bid

-- q22 directories of the URL
SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2,
  SPLIT_INDEX(url, '/', 5) AS dir3 FROM bid
-- PostgreSQL
SELECT auction, bidder, price, channel, SPLIT_PART(url, '/', 4), SPLIT_PART(url, '/', 5), SPLIT_PART(url, '/', 6) FROM bid
