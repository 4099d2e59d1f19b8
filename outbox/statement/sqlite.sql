-- name: busy
SELECT 0 WHERE EXISTS (SELECT 1 FROM {{table}})

-- name: busy_behind
SELECT {{shard}} WHERE EXISTS (SELECT 1 FROM {{table}} WHERE shard = {{shard}} AND id > ?)

-- name: top
SELECT coalesce((SELECT id FROM {{table}} WHERE shard = ? ORDER BY id DESC LIMIT 1), 0)

-- name: writers
-- See postgres.sql. There is one writer at a time, so nobody can commit a smaller id.
SELECT coalesce((SELECT max(id) FROM {{table}}), 0), 1, ''

-- name: lock
-- Takes a lease by the database's clock. The arguments are owner, milliseconds, shard, owner. A
-- lease that is longer than any relay takes is left from before the clock was put back.
UPDATE {{shards}} SET owner = ?, until = {{now}} + ?
WHERE shard = ? AND (owner = ? OR until <= {{now}} OR until > {{now}} + {{longest lease}})

-- name: unlock
UPDATE {{shards}} SET until = 0 WHERE owner = ?

-- name: read
SELECT id, topic, dedup_id, key, headers, payload, attempts,
    CASE WHEN retry_at > {{now}} AND retry_at <= {{now}} + {{longest}} / 1000 THEN 1 ELSE 0 END,
    CASE WHEN payload IS NULL THEN 1 ELSE 0 END
FROM {{table}} WHERE shard = ? AND id > ?{{topics}} ORDER BY id LIMIT ?

-- name: read_free
-- Reads the same, but not the messages that wait for a message of their key that has failed. The
-- keys that wait are compared as a set, and all rows with one time: see postgres.sql.
SELECT id, topic, dedup_id, key, headers, payload, attempts, 0, CASE WHEN payload IS NULL THEN 1 ELSE 0 END
FROM {{table}} WHERE shard = ? AND id > ?{{topics}}
AND (retry_at IS NULL OR retry_at <= {{now}} OR retry_at > {{now}} + {{longest}} / 1000)
AND (key = x'' OR (topic, key) NOT IN (
    SELECT topic, key FROM {{table}} WHERE retry_at IS NOT NULL AND retry_at > {{now}} AND retry_at <= {{now}} + {{longest}} / 1000
) AND (attempts > 0 OR (topic, key) NOT IN (
    SELECT topic, key FROM {{table}} WHERE retry_at IS NOT NULL AND attempts > 0
))) ORDER BY id LIMIT ?

-- name: delete
DELETE FROM {{table}} WHERE shard = ? AND id IN ({{ids}})

-- name: fail
UPDATE {{table}} SET attempts = attempts + ?, retry_at = {{now}} + ? / 1000
WHERE shard = ? AND id IN ({{ids}})

-- name: park
INSERT INTO {{parked}} (id, shard, attempts, created_at, reason, topic, dedup_id, key, headers, payload)
SELECT id, shard, attempts + 1, created_at, ?, topic, dedup_id, key, headers, payload
FROM {{table}} WHERE shard = ? AND id = ?

-- name: lag
SELECT (SELECT count(*) FROM (SELECT 1 FROM {{table}} LIMIT ?)),
    (SELECT count(*) FROM (SELECT 1 FROM {{parked}} LIMIT ?)),
    (SELECT count(*) FROM (SELECT 1 FROM {{scheduled}} LIMIT ?)),
    max(coalesce((SELECT ({{now}} - created_at) * 1000 FROM {{table}} ORDER BY id LIMIT 1), 0),
    coalesce((SELECT ({{now}} - max(not_before, created_at)) * 1000 FROM {{scheduled}} ORDER BY not_before, id LIMIT 1), 0))

-- name: parked
SELECT id, topic, dedup_id, key, headers, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, attempts, reason, created_at * 1000, parked_at * 1000
FROM {{parked}} WHERE id > ? ORDER BY id LIMIT ?

-- name: requeue
INSERT INTO {{table}} (shard, topic, dedup_id, key, headers, payload)
SELECT shard, topic, dedup_id, key, headers, payload FROM {{parked}} WHERE id = ?

-- name: unpark
DELETE FROM {{parked}} WHERE id = ?

-- name: form
SELECT id, shard, attempts, created_at, retry_at, topic, dedup_id, key, headers, payload FROM {{table}} WHERE 1 = 0

-- name: form_parked
SELECT id, shard, attempts, created_at, parked_at, reason, topic, dedup_id, key, headers, payload FROM {{parked}} WHERE 1 = 0

-- name: form_scheduled
SELECT id, not_before, shard, created_at, topic, dedup_id, key, headers, payload FROM {{scheduled}} WHERE 1 = 0

-- name: form_published
SELECT id, shard, attempts, created_at, published_at, topic, dedup_id, key, headers, payload FROM {{published}} WHERE 1 = 0

-- name: next_due
SELECT (not_before - {{now}}) * 1000 FROM {{scheduled}} ORDER BY not_before, id LIMIT 1

-- name: lock_due
-- There is one writer at a time, which this transaction is from now on.
UPDATE {{shards}} SET until = until WHERE shard = 0 RETURNING 1

-- name: due
SELECT id, not_before * 1000 FROM {{scheduled}} WHERE not_before <= {{now}} AND not_before >= ? / 1000 ORDER BY not_before, id LIMIT ?

-- name: release
INSERT INTO {{table}} (shard, created_at, topic, dedup_id, key, headers, payload)
SELECT shard, max(created_at, not_before), topic, dedup_id, key, headers, payload
FROM {{scheduled}} WHERE id IN ({{ids}}) ORDER BY not_before, id

-- name: unschedule
DELETE FROM {{scheduled}} WHERE id IN ({{ids}})

-- name: keep
INSERT INTO {{published}} (shard, attempts, created_at, topic, dedup_id, key, headers, payload)
SELECT shard, attempts, created_at, topic, dedup_id, key, headers, payload
FROM {{table}} WHERE shard = ? AND id IN ({{ids}}) ORDER BY id

-- name: expired
SELECT id, CASE WHEN abs({{now}} - published_at) > ? / 1000 THEN 1 ELSE 0 END
FROM {{published}} WHERE id > ? ORDER BY id LIMIT ?

-- name: forget
DELETE FROM {{published}} WHERE id IN ({{ids}})

-- name: published
SELECT id, topic, dedup_id, key, headers, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, attempts, created_at * 1000, published_at * 1000
FROM {{published}} WHERE id > ? ORDER BY id LIMIT ?
