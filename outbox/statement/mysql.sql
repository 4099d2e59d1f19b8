-- name: busy
SELECT s.shard FROM {{shards}} AS s WHERE EXISTS (SELECT 1 FROM {{table}} AS o WHERE o.shard = s.shard)

-- name: lock
SELECT 1 FROM {{shards}} WHERE shard = ? FOR UPDATE SKIP LOCKED

-- name: read
SELECT id, topic, dedup_id, `key`, headers, payload, attempts, CASE WHEN retry_at > NOW(6) THEN 1 ELSE 0 END,
    CASE WHEN payload IS NULL THEN 1 ELSE 0 END
FROM {{table}} WHERE shard = ? ORDER BY id LIMIT ?

-- name: read_free
-- The same without what waits for a message that has failed.
SELECT o.id, o.topic, o.dedup_id, o.`key`, o.headers, o.payload, o.attempts, 0, CASE WHEN o.payload IS NULL THEN 1 ELSE 0 END
FROM {{table}} AS o WHERE o.shard = ? AND NOT EXISTS (
    SELECT 1 FROM {{table}} AS h WHERE h.shard = o.shard AND h.retry_at > NOW(6)
    AND (h.id = o.id OR h.id < o.id AND h.`key` <> '' AND h.`key` = o.`key` AND h.topic = o.topic)
) ORDER BY o.id LIMIT ?

-- name: delete
DELETE FROM {{table}} WHERE shard = ? AND id IN ({{ids}})

-- name: fail
UPDATE {{table}} SET attempts = attempts + ?, retry_at = NOW(6) + INTERVAL ? MICROSECOND
WHERE shard = ? AND id IN ({{ids}})

-- name: park
INSERT INTO {{parked}} (id, shard, attempts, created_at, reason, topic, dedup_id, `key`, headers, payload)
SELECT id, shard, attempts + 1, created_at, ?, topic, dedup_id, `key`, headers, payload
FROM {{table}} WHERE shard = ? AND id = ?

-- name: lag
SELECT (SELECT count(*) FROM (SELECT 1 FROM {{table}} LIMIT ?) AS p),
    (SELECT count(*) FROM (SELECT 1 FROM {{parked}} LIMIT ?) AS q),
    coalesce((SELECT TIMESTAMPDIFF(MICROSECOND, min((SELECT o.created_at FROM {{table}} AS o WHERE o.shard = s.shard ORDER BY o.id LIMIT 1)), NOW(6))
        FROM {{shards}} AS s), 0)

-- name: parked
SELECT id, topic, dedup_id, `key`, headers, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, attempts, reason,
    CAST(UNIX_TIMESTAMP(created_at) * 1000000 AS SIGNED), CAST(UNIX_TIMESTAMP(parked_at) * 1000000 AS SIGNED)
FROM {{parked}} WHERE id > ? ORDER BY id LIMIT ?

-- name: requeue
INSERT INTO {{table}} (shard, topic, dedup_id, `key`, headers, payload)
SELECT shard, topic, dedup_id, `key`, headers, payload FROM {{parked}} WHERE id = ? FOR UPDATE

-- name: unpark
DELETE FROM {{parked}} WHERE id = ?
