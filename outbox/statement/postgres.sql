-- name: busy
-- Returns the shards that have messages. The ORDER BY makes each search a probe of the primary key:
-- without it, the planner may find it cheap to search the whole table for one row of a shard that
-- has none.
SELECT s FROM generate_series(0, 15) AS s,
LATERAL (SELECT 1 FROM {{table}} WHERE shard = s ORDER BY id LIMIT 1) AS one

-- name: busy_behind
-- Does the same, but looks in each shard only behind an id of its own.
SELECT s FROM generate_series(0, 15) AS s,
LATERAL (SELECT 1 FROM {{table}} WHERE shard = s AND id > ($1::text::bigint[])[s + 1] ORDER BY id LIMIT 1) AS one

-- name: top
SELECT coalesce((SELECT id FROM {{table}} WHERE shard = $1::smallint ORDER BY id DESC LIMIT 1), 0)

-- name: writers
-- Returns the newest id, the run of the server, and the transactions that may still commit a
-- smaller id. The locks show these transactions: an INSERT locks the table before it gets an id,
-- and the lock ends with its transaction, after other transactions can see its rows. The ids are
-- read in the statement's snapshot, which is older than the locks. The argument has for each shard
-- an id up to which the shard is empty. A prepared transaction has no pid, and before PostgreSQL 14
-- it gets another name when it is prepared. The run is 0 where the locks prove nothing: on a
-- replica, which does not have the locks of the primary, and where this statement's own lock is not
-- among them.
SELECT coalesce((SELECT max(one.id) FROM generate_series(0, 15) AS s,
    LATERAL (SELECT id FROM {{table}} WHERE shard = s AND id > ($1::text::bigint[])[s + 1] ORDER BY id DESC LIMIT 1) AS one), 0),
    CASE WHEN pg_is_in_recovery() OR bool_or(l.pid = pg_backend_pid()) IS NOT TRUE THEN 0 ELSE {{run}} END,
    coalesce(string_agg(CASE WHEN l.pid IS NULL THEN 'prepared' ELSE l.virtualtransaction END, ' ') FILTER (WHERE l.mode = 'RowExclusiveLock'), '')
FROM pg_locks AS l WHERE l.locktype = 'relation' AND l.granted AND l.relation = '{{table}}'::regclass
AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())

-- name: lock
-- Takes the lock of a shard, and returns the run of the server, or 0 if another relay has the lock.
-- This is a statement of its own, so that the next statement has a newer snapshot: the rows that
-- the last relay deleted must not be in it. The lock has the table's oid, because the same table
-- may be named with its schema and without. A relay whose machine has died says nothing to the
-- server, which would keep the lock for hours. So the server is told to end a transaction that is
-- idle for longer than a relay may be.
SELECT CASE WHEN pg_try_advisory_xact_lock(('{{table}}'::regclass::oid::bigint - 2147483648)::integer, $1::integer)
AND set_config('idle_in_transaction_session_timeout', '{{idle}}', true) IS NOT NULL
THEN {{run}} ELSE 0 END

-- name: read
SELECT id, topic, dedup_id, key, headers, payload, attempts,
    CASE WHEN retry_at > statement_timestamp() AND retry_at <= statement_timestamp() + {{longest}} * interval '1 microsecond' THEN 1 ELSE 0 END,
    CASE WHEN payload IS NULL THEN 1 ELSE 0 END
FROM {{table}} WHERE shard = $1::smallint AND id > $3::bigint{{topics}} ORDER BY id LIMIT $2::bigint

-- name: read_free
-- Reads the same, but not the messages that wait for a message of their key that has failed. The
-- keys that wait are compared as a set, which is hashed once: compared one by one, 600 waiting keys
-- took seconds for a backlog of 20,000. All rows are compared with one time. With a clock that goes
-- on, a message could still wait when its own row is compared, and no longer when the waiting keys
-- are searched; then the next message of its key would overtake it. A message that has failed
-- before keeps its key waiting even when its own time has come, because it may fail again.
SELECT id, topic, dedup_id, key, headers, payload, attempts, 0, CASE WHEN payload IS NULL THEN 1 ELSE 0 END
FROM {{table}} WHERE shard = $1::smallint AND id > $3::bigint{{topics}}
AND (retry_at IS NULL OR retry_at <= statement_timestamp() OR retry_at > statement_timestamp() + {{longest}} * interval '1 microsecond')
AND (key = ''::bytea OR (topic, key) NOT IN (
    SELECT topic, key FROM {{table}} WHERE shard = $1::smallint AND retry_at IS NOT NULL
    AND retry_at > statement_timestamp() AND retry_at <= statement_timestamp() + {{longest}} * interval '1 microsecond'
) AND (attempts > 0 OR (topic, key) NOT IN (
    SELECT topic, key FROM {{table}} WHERE shard = $1::smallint AND retry_at IS NOT NULL AND attempts > 0
))) ORDER BY id LIMIT $2::bigint

-- name: delete
-- The list is made before the search begins: as a mere parameter, in a table without statistics, it
-- was read anew for each row of the shard, and a batch took seconds to delete.
DELETE FROM {{table}} WHERE shard = $1::smallint AND id = ANY (ARRAY(SELECT unnest($2::text::bigint[])))

-- name: fail
UPDATE {{table}} SET attempts = attempts + $1::integer, retry_at = clock_timestamp() + $2::bigint * interval '1 microsecond'
WHERE shard = $3::smallint AND id = ANY (ARRAY(SELECT unnest($4::text::bigint[])))

-- name: park
INSERT INTO {{parked}} (id, shard, attempts, created_at, reason, topic, dedup_id, key, headers, payload)
SELECT id, shard, attempts + 1, created_at, $1::text, topic, dedup_id, key, headers, payload
FROM {{table}} WHERE shard = $2::smallint AND id = $3::bigint

-- name: lag
SELECT (SELECT count(*) FROM (SELECT 1 FROM {{table}} LIMIT $1::bigint) AS p),
    (SELECT count(*) FROM (SELECT 1 FROM {{parked}} LIMIT $2::bigint) AS q),
    (SELECT count(*) FROM (SELECT 1 FROM {{scheduled}} LIMIT $3::bigint) AS r),
    greatest(coalesce((SELECT (extract(epoch FROM clock_timestamp() - min(one.created_at)) * 1000000)::bigint
        FROM generate_series(0, 15) AS s,
        LATERAL (SELECT created_at FROM {{table}} WHERE shard = s ORDER BY id LIMIT 1) AS one), 0),
    coalesce((SELECT (extract(epoch FROM clock_timestamp() - greatest(least(not_before, '2200-01-01'::timestamptz), created_at)) * 1000000)::bigint
        FROM {{scheduled}} ORDER BY not_before, id LIMIT 1), 0))

-- name: parked
SELECT id, topic, dedup_id, key, headers, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, attempts, reason,
    (extract(epoch FROM created_at) * 1000000)::bigint, (extract(epoch FROM parked_at) * 1000000)::bigint
FROM {{parked}} WHERE id > $1::bigint ORDER BY id LIMIT $2::bigint

-- name: requeue
INSERT INTO {{table}} (shard, topic, dedup_id, key, headers, payload)
SELECT shard, topic, dedup_id, key, headers, payload FROM {{parked}} WHERE id = $1::bigint FOR UPDATE

-- name: unpark
DELETE FROM {{parked}} WHERE id = $1::bigint

-- name: form
SELECT id, shard, attempts, created_at, retry_at, topic, dedup_id, key, headers, payload FROM {{table}} WHERE 1 = 0

-- name: form_parked
SELECT id, shard, attempts, created_at, parked_at, reason, topic, dedup_id, key, headers, payload FROM {{parked}} WHERE 1 = 0

-- name: form_scheduled
SELECT id, not_before, shard, created_at, topic, dedup_id, key, headers, payload FROM {{scheduled}} WHERE 1 = 0

-- name: form_published
SELECT id, shard, attempts, created_at, published_at, topic, dedup_id, key, headers, payload FROM {{published}} WHERE 1 = 0

-- name: next_due
-- Returns how long it is until the first scheduled message may be published, in microseconds.
-- Another program may have written an infinite time, from which nothing can be subtracted.
SELECT ceil(extract(epoch FROM greatest(least(not_before, '2200-01-01'::timestamptz), 'epoch'::timestamptz) - clock_timestamp()) * 1000000)::bigint FROM {{scheduled}} ORDER BY not_before, id LIMIT 1

-- name: lock_due
-- Does what lock does, for a shard that no message has. One relay at a time moves the messages that
-- are due: two relays would mix up the order of a key.
SELECT 1 WHERE pg_try_advisory_xact_lock(('{{table}}'::regclass::oid::bigint - 2147483648)::integer, 16)

-- name: due
-- Returns the messages that may be published now, with their times, from the time of the messages
-- that were moved just before. If that time is negative, it also returns messages with a time
-- before 1970, which another program has written.
SELECT id, (extract(epoch FROM greatest(not_before, 'epoch'::timestamptz)) * 1000000)::bigint FROM {{scheduled}}
WHERE not_before <= statement_timestamp()
AND not_before >= CASE WHEN $1::bigint < 0 THEN '-infinity'::timestamptz ELSE 'epoch'::timestamptz + $1::bigint * interval '1 microsecond' END
ORDER BY not_before, id LIMIT $2::bigint

-- name: release
INSERT INTO {{table}} (shard, created_at, topic, dedup_id, key, headers, payload)
SELECT shard, greatest(created_at, not_before), topic, dedup_id, key, headers, payload
FROM {{scheduled}} WHERE id = ANY (ARRAY(SELECT unnest($1::text::bigint[]))) ORDER BY not_before, id

-- name: unschedule
DELETE FROM {{scheduled}} WHERE id = ANY (ARRAY(SELECT unnest($1::text::bigint[])))

-- name: keep
INSERT INTO {{published}} (shard, attempts, created_at, topic, dedup_id, key, headers, payload)
SELECT shard, attempts, created_at, topic, dedup_id, key, headers, payload
FROM {{table}} WHERE shard = $1::smallint AND id = ANY (ARRAY(SELECT unnest($2::text::bigint[]))) ORDER BY id

-- name: expired
-- Returns the oldest messages behind an id, and which of them are older than so many microseconds.
-- A message from as far in the future was written by a wrong clock, and must not keep the messages
-- behind it.
SELECT id, CASE WHEN abs(extract(epoch FROM clock_timestamp() - published_at) * 1000000) > $1::bigint THEN 1 ELSE 0 END
FROM {{published}} WHERE id > $2::bigint ORDER BY id LIMIT $3::bigint

-- name: forget
DELETE FROM {{published}} WHERE id = ANY (ARRAY(SELECT unnest($1::text::bigint[])))

-- name: published
SELECT id, topic, dedup_id, key, headers, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, attempts,
    (extract(epoch FROM created_at) * 1000000)::bigint, (extract(epoch FROM published_at) * 1000000)::bigint
FROM {{published}} WHERE id > $1::bigint ORDER BY id LIMIT $2::bigint

-- name: lag_behind
-- Returns what lag returns. If the run of the server is still that of the last argument, it looks
-- only behind the ids up to which a relay has seen that the shards are empty.
SELECT (SELECT count(*) FROM (SELECT 1 FROM generate_series(0, 15) AS s,
        LATERAL (SELECT 1 FROM {{table}} WHERE shard = s AND id > CASE WHEN {{run}} = $5::bigint THEN ($4::text::bigint[])[s + 1] ELSE 0 END ORDER BY id LIMIT $1::bigint) AS one
        LIMIT $1::bigint) AS p),
    (SELECT count(*) FROM (SELECT 1 FROM {{parked}} LIMIT $2::bigint) AS q),
    (SELECT count(*) FROM (SELECT 1 FROM {{scheduled}} LIMIT $3::bigint) AS r),
    greatest(coalesce((SELECT (extract(epoch FROM clock_timestamp() - min(one.created_at)) * 1000000)::bigint
        FROM generate_series(0, 15) AS s,
        LATERAL (SELECT created_at FROM {{table}} WHERE shard = s AND id > CASE WHEN {{run}} = $5::bigint THEN ($4::text::bigint[])[s + 1] ELSE 0 END ORDER BY id LIMIT 1) AS one), 0),
    coalesce((SELECT (extract(epoch FROM clock_timestamp() - greatest(least(not_before, '2200-01-01'::timestamptz), created_at)) * 1000000)::bigint
        FROM {{scheduled}} ORDER BY not_before, id LIMIT 1), 0))

-- name: holder
-- Returns the session, prepared transaction or replication slot that holds the oldest snapshot; of
-- several, the one that has held it for the longest time. A role needs pg_read_all_stats to see the
-- snapshots of other users' sessions. A snapshot of another database keeps no rows of this one, nor
-- does that of a VACUUM. A standby's feedback belongs to no database, and keeps rows of all.
SELECT kind, name, age, who, application, state, query FROM (
    SELECT 'session' AS kind, pid::text AS name, coalesce((extract(epoch FROM clock_timestamp() - xact_start) * 1000000)::bigint, 0) AS age, coalesce(usename::text, '') AS who,
        coalesce(application_name, '') AS application, coalesce(state, '') AS state, left(coalesce(query, ''), 500) AS query, age(backend_xmin) AS xids
    FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
    AND (datname = current_database() OR datname IS NULL) AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
    UNION ALL
    SELECT 'prepared transaction', gid, (extract(epoch FROM clock_timestamp() - prepared) * 1000000)::bigint, owner::text, '', 'prepared', '', age(transaction) FROM pg_prepared_xacts WHERE database = current_database()
    UNION ALL
    SELECT 'replication slot', slot_name::text, 0, '', '', CASE WHEN active THEN 'active' ELSE 'inactive' END, '', age(xmin) FROM pg_replication_slots WHERE xmin IS NOT NULL
) AS one ORDER BY xids DESC, age DESC LIMIT 1
