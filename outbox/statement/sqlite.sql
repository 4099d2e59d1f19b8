-- name: busy
SELECT 0 WHERE EXISTS (SELECT 1 FROM {{table}})

-- name: lock
-- A lease by the database's clock: owner, milliseconds, shard, owner.
UPDATE {{shards}} SET owner = ?, until = {{now}} + ? WHERE shard = ? AND (owner = ? OR until <= {{now}})

-- name: unlock
UPDATE {{shards}} SET until = 0 WHERE owner = ?

-- name: read
SELECT id, topic, dedup_id, key, headers, payload, attempts, CASE WHEN retry_at > {{now}} THEN 1 ELSE 0 END,
    CASE WHEN payload IS NULL THEN 1 ELSE 0 END
FROM {{table}} WHERE shard = ? ORDER BY id LIMIT ?

-- name: read_free
-- The same without what waits for a message that has failed.
SELECT id, topic, dedup_id, key, headers, payload, attempts, 0, CASE WHEN payload IS NULL THEN 1 ELSE 0 END
FROM {{table}} AS o WHERE shard = ? AND NOT EXISTS (
    SELECT 1 FROM {{table}} AS h WHERE h.retry_at IS NOT NULL AND h.retry_at > {{now}}
    AND (h.id = o.id OR h.id < o.id AND h.key <> x'' AND h.key = o.key AND h.topic = o.topic)
) ORDER BY id LIMIT ?

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
    coalesce((SELECT ({{now}} - created_at) * 1000 FROM {{table}} ORDER BY id LIMIT 1), 0)

-- name: parked
SELECT id, topic, dedup_id, key, headers, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, attempts, reason, created_at * 1000, parked_at * 1000
FROM {{parked}} WHERE id > ? ORDER BY id LIMIT ?

-- name: requeue
INSERT INTO {{table}} (shard, topic, dedup_id, key, headers, payload)
SELECT shard, topic, dedup_id, key, headers, payload FROM {{parked}} WHERE id = ?

-- name: unpark
DELETE FROM {{parked}} WHERE id = ?
