-- name: busy
SELECT s.shard FROM {{shards}} AS s WHERE EXISTS (SELECT 1 FROM {{table}} AS o WHERE o.shard = s.shard)

-- name: busy_behind
-- Does the same for one shard, behind an id.
(SELECT {{shard}} FROM {{table}} WHERE shard = {{shard}} AND id > ? LIMIT 1)

-- name: top
SELECT coalesce((SELECT id FROM {{table}} WHERE shard = ? ORDER BY id DESC LIMIT 1), 0)

-- name: lock
SELECT 1 FROM {{shards}} WHERE shard = ? FOR UPDATE SKIP LOCKED

-- name: read
SELECT id, topic, dedup_id, `key`, headers, payload, attempts,
    CASE WHEN UNIX_TIMESTAMP(retry_at) * 1000000 > {{now}} AND UNIX_TIMESTAMP(retry_at) * 1000000 <= {{now}} + {{longest}} THEN 1 ELSE 0 END,
    CASE WHEN payload IS NULL THEN 1 ELSE 0 END
FROM {{table}} WHERE shard = ? AND id > ?{{topics}} ORDER BY id LIMIT ?

-- name: read_free
-- Reads the same, but not the messages that wait for a message of their key that has failed. The
-- keys that wait are compared as a set, which is looked up once and kept: see postgres.sql. The set
-- has digests, because keys are too long for it. A topic has no space, so a space separates topic
-- and key.
SELECT id, topic, dedup_id, `key`, headers, payload, attempts, 0, CASE WHEN payload IS NULL THEN 1 ELSE 0 END
FROM {{table}} WHERE shard = ? AND id > ?{{topics}}
AND (retry_at IS NULL OR UNIX_TIMESTAMP(retry_at) * 1000000 <= {{now}} OR UNIX_TIMESTAMP(retry_at) * 1000000 > {{now}} + {{longest}})
AND (`key` = '' OR coalesce(SHA2(CONCAT(topic, ' ', `key`), 256), '') NOT IN (
    SELECT coalesce(SHA2(CONCAT(topic, ' ', `key`), 256), '') FROM {{table}} WHERE shard = {{shard}}
    AND UNIX_TIMESTAMP(retry_at) * 1000000 > {{now}} AND UNIX_TIMESTAMP(retry_at) * 1000000 <= {{now}} + {{longest}}
) AND (attempts > 0 OR coalesce(SHA2(CONCAT(topic, ' ', `key`), 256), '') NOT IN (
    SELECT coalesce(SHA2(CONCAT(topic, ' ', `key`), 256), '') FROM {{table}} WHERE shard = {{shard}} AND attempts > 0
))) ORDER BY id LIMIT ?

-- name: delete
-- Deletes row by row: for a list that names a good part of the table, InnoDB would read the whole
-- table, and wait for the rows of transactions that have not ended.
DELETE o FROM JSON_TABLE('[{{ids}}]', '$[*]' COLUMNS (id BIGINT PATH '$')) AS x
STRAIGHT_JOIN {{table}} AS o FORCE INDEX (PRIMARY) ON o.shard = ? AND o.id = x.id

-- name: fail
UPDATE JSON_TABLE('[{{ids}}]', '$[*]' COLUMNS (id BIGINT PATH '$')) AS x
STRAIGHT_JOIN {{table}} AS o FORCE INDEX (PRIMARY) ON o.id = x.id
SET o.attempts = o.attempts + ?, o.retry_at = FROM_UNIXTIME(({{now}} + ?) * 0.000001)
WHERE o.shard = ?

-- name: park
INSERT INTO {{parked}} (id, shard, attempts, created_at, reason, topic, dedup_id, `key`, headers, payload)
SELECT id, shard, attempts + 1, created_at, ?, topic, dedup_id, `key`, headers, payload
FROM {{table}} WHERE shard = ? AND id = ?

-- name: lag
SELECT (SELECT count(*) FROM (SELECT 1 FROM {{table}} LIMIT ?) AS p),
    (SELECT count(*) FROM (SELECT 1 FROM {{parked}} LIMIT ?) AS q),
    (SELECT count(*) FROM (SELECT 1 FROM {{scheduled}} LIMIT ?) AS r),
    CAST(greatest(coalesce((SELECT {{now}} - min((SELECT UNIX_TIMESTAMP(o.created_at) FROM {{table}} AS o WHERE o.shard = s.shard ORDER BY o.id LIMIT 1)) * 1000000
        FROM {{shards}} AS s), 0),
    coalesce((SELECT {{now}} - greatest(not_before, UNIX_TIMESTAMP(created_at) * 1000000) FROM {{scheduled}} ORDER BY not_before, id LIMIT 1), 0)) AS SIGNED)

-- name: parked
SELECT id, topic, dedup_id, `key`, headers, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, attempts, reason,
    CAST(UNIX_TIMESTAMP(created_at) * 1000000 AS SIGNED), CAST(UNIX_TIMESTAMP(parked_at) * 1000000 AS SIGNED)
FROM {{parked}} WHERE id > ? ORDER BY id LIMIT ?

-- name: requeue
INSERT INTO {{table}} (shard, topic, dedup_id, `key`, headers, payload)
SELECT shard, topic, dedup_id, `key`, headers, payload FROM {{parked}} WHERE id = ? FOR UPDATE

-- name: unpark
DELETE FROM {{parked}} WHERE id = ?

-- name: form
SELECT id, shard, attempts, created_at, retry_at, topic, dedup_id, `key`, headers, payload FROM {{table}} WHERE 1 = 0

-- name: form_parked
SELECT id, shard, attempts, created_at, parked_at, reason, topic, dedup_id, `key`, headers, payload FROM {{parked}} WHERE 1 = 0

-- name: form_scheduled
SELECT id, not_before, shard, created_at, topic, dedup_id, `key`, headers, payload FROM {{scheduled}} WHERE 1 = 0

-- name: form_published
SELECT id, shard, attempts, created_at, published_at, topic, dedup_id, `key`, headers, payload FROM {{published}} WHERE 1 = 0

-- name: next_due
SELECT not_before - {{now}} FROM {{scheduled}} ORDER BY not_before, id LIMIT 1

-- name: lock_due
SELECT 1 FROM {{shards}} WHERE shard = 16 FOR UPDATE SKIP LOCKED

-- name: due
SELECT id, not_before FROM {{scheduled}} WHERE not_before <= {{now}} AND not_before >= ? ORDER BY not_before, id LIMIT ?

-- name: release
INSERT INTO {{table}} (shard, created_at, topic, dedup_id, `key`, headers, payload)
SELECT o.shard, greatest(o.created_at, FROM_UNIXTIME(greatest(o.not_before, 0) * 0.000001)), o.topic, o.dedup_id, o.`key`, o.headers, o.payload
FROM JSON_TABLE('[{{ids}}]', '$[*]' COLUMNS (id BIGINT PATH '$')) AS x
STRAIGHT_JOIN {{scheduled}} AS o FORCE INDEX (PRIMARY) ON o.id = x.id ORDER BY o.not_before, o.id

-- name: unschedule
DELETE o FROM JSON_TABLE('[{{ids}}]', '$[*]' COLUMNS (id BIGINT PATH '$')) AS x
STRAIGHT_JOIN {{scheduled}} AS o FORCE INDEX (PRIMARY) ON o.id = x.id

-- name: keep
INSERT INTO {{published}} (shard, attempts, created_at, topic, dedup_id, `key`, headers, payload)
SELECT o.shard, o.attempts, o.created_at, o.topic, o.dedup_id, o.`key`, o.headers, o.payload
FROM JSON_TABLE('[{{ids}}]', '$[*]' COLUMNS (id BIGINT PATH '$')) AS x
STRAIGHT_JOIN {{table}} AS o FORCE INDEX (PRIMARY) ON o.shard = ? AND o.id = x.id ORDER BY o.id

-- name: expired
SELECT id, CASE WHEN ABS({{now}} - UNIX_TIMESTAMP(published_at) * 1000000) > ? THEN 1 ELSE 0 END
FROM {{published}} WHERE id > ? ORDER BY id LIMIT ?

-- name: forget
DELETE o FROM JSON_TABLE('[{{ids}}]', '$[*]' COLUMNS (id BIGINT PATH '$')) AS x
STRAIGHT_JOIN {{published}} AS o FORCE INDEX (PRIMARY) ON o.id = x.id

-- name: published
SELECT id, topic, dedup_id, `key`, headers, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, attempts,
    CAST(UNIX_TIMESTAMP(created_at) * 1000000 AS SIGNED), CAST(UNIX_TIMESTAMP(published_at) * 1000000 AS SIGNED)
FROM {{published}} WHERE id > ? ORDER BY id LIMIT ?

-- name: holder
-- This statement needs the right PROCESS.
SELECT 'session', CAST(trx_mysql_thread_id AS CHAR), TIMESTAMPDIFF(MICROSECOND, trx_started, NOW(6)), coalesce(p.user, ''), '', coalesce(p.command, trx_state), left(coalesce(trx_query, ''), 500)
FROM information_schema.innodb_trx LEFT JOIN information_schema.processlist AS p ON p.id = trx_mysql_thread_id
WHERE trx_mysql_thread_id <> CONNECTION_ID() ORDER BY trx_started LIMIT 1

-- name: holder_bytes
-- MySQL cannot show innodb_trx while a statement runs whose bytes are not UTF-8. This statement
-- needs the right SELECT on performance_schema, which cuts such a statement short.
SELECT 'session', CAST(processlist_id AS CHAR), timer_wait DIV 1000000, coalesce(processlist_user, ''), '', coalesce(processlist_command, ''), left(coalesce(processlist_info, ''), 500)
FROM performance_schema.events_transactions_current JOIN performance_schema.threads USING (thread_id)
WHERE state = 'ACTIVE' AND processlist_id <> CONNECTION_ID() ORDER BY timer_wait DESC LIMIT 1
