-- One row per message that is not known to be published. shard is a hash of the key, for
-- relays to divide the work by; id orders the messages of a shard. headers is a list in a
-- binary form. dedup_id is what the consumer deduplicates by. attempts counts how often the
-- message has failed by itself; until retry_at it and the later ones of its key wait.
CREATE TABLE IF NOT EXISTS "Shop"."box" (
    id         bigint      GENERATED ALWAYS AS IDENTITY,
    shard      smallint    NOT NULL,
    attempts   integer     NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    retry_at   timestamptz,
    topic      text        COLLATE "C" NOT NULL,
    dedup_id   text        COLLATE "C" NOT NULL,
    key        bytea       NOT NULL,
    headers    bytea       NOT NULL,
    payload    bytea,
    PRIMARY KEY (shard, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Nearly always empty: the messages that have failed.
CREATE INDEX IF NOT EXISTS "box_held" ON "Shop"."box" (shard, id) WHERE retry_at IS NOT NULL;

-- Messages the broker has refused for good, with the reason, until somebody requeues or
-- deletes them.
CREATE TABLE IF NOT EXISTS "Shop"."box_parked" (
    id         bigint      NOT NULL PRIMARY KEY,
    shard      smallint    NOT NULL,
    attempts   integer     NOT NULL,
    created_at timestamptz NOT NULL,
    parked_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason     text        NOT NULL,
    topic      text        COLLATE "C" NOT NULL,
    dedup_id   text        COLLATE "C" NOT NULL,
    key        bytea       NOT NULL,
    headers    bytea       NOT NULL,
    payload    bytea
);

CREATE TABLE IF NOT EXISTS "Shop"."onceward_migrations" (component text COLLATE "C" NOT NULL, table_name text COLLATE "C" NOT NULL, version integer NOT NULL, PRIMARY KEY (component, table_name));

INSERT INTO "Shop"."onceward_migrations" (component, table_name, version) VALUES ('outbox', 'box', 1) ON CONFLICT (component, table_name) DO UPDATE SET version = excluded.version;


INSERT INTO "Shop"."box" (shard, topic, dedup_id, key, headers, payload) VALUES ($1::smallint, $2::text, $3::text, $4::bytea, $5::bytea, $6::bytea), ($7::smallint, $8::text, $9::text, $10::bytea, $11::bytea, $12::bytea)

SELECT s FROM generate_series(0, 15) AS s, LATERAL (SELECT 1 FROM "Shop"."box" WHERE shard = s ORDER BY id LIMIT 1) AS one

SELECT s FROM generate_series(0, 15) AS s, LATERAL (SELECT 1 FROM "Shop"."box" WHERE shard = s AND id > ($1::text::bigint[])[s + 1] ORDER BY id LIMIT 1) AS one

SELECT coalesce((SELECT id FROM "Shop"."box" WHERE shard = $1::smallint ORDER BY id DESC LIMIT 1), 0)

SELECT coalesce((SELECT max(one.id) FROM generate_series(0, 15) AS s, LATERAL (SELECT id FROM "Shop"."box" WHERE shard = s ORDER BY id DESC LIMIT 1) AS one), 0), CASE WHEN pg_is_in_recovery() OR bool_or(l.pid = pg_backend_pid()) IS NOT TRUE THEN 0 ELSE (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint END, coalesce(string_agg(CASE WHEN l.pid IS NULL THEN 'prepared' ELSE l.virtualtransaction END, ' ') FILTER (WHERE l.mode = 'RowExclusiveLock'), '') FROM pg_locks AS l WHERE l.locktype = 'relation' AND l.granted AND l.relation = '"Shop"."box"'::regclass AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())

SELECT CASE WHEN pg_try_advisory_xact_lock(('"Shop"."box"'::regclass::oid::bigint - 2147483648)::integer, $1::integer) AND set_config('idle_in_transaction_session_timeout', '{{idle}}', true) IS NOT NULL THEN (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint ELSE 0 END



SELECT id, topic, dedup_id, key, headers, payload, attempts, CASE WHEN retry_at > statement_timestamp() AND retry_at <= statement_timestamp() + {{longest}} * interval '1 microsecond' THEN 1 ELSE 0 END, CASE WHEN payload IS NULL THEN 1 ELSE 0 END FROM "Shop"."box" WHERE shard = $1::smallint AND id > $3::bigint{{topics}} ORDER BY id LIMIT $2::bigint

SELECT id, topic, dedup_id, key, headers, payload, attempts, 0, CASE WHEN payload IS NULL THEN 1 ELSE 0 END FROM "Shop"."box" WHERE shard = $1::smallint AND id > $3::bigint{{topics}} AND (retry_at IS NULL OR retry_at <= statement_timestamp() OR retry_at > statement_timestamp() + {{longest}} * interval '1 microsecond') AND (key = ''::bytea OR (topic, key) NOT IN ( SELECT topic, key FROM "Shop"."box" WHERE shard = $1::smallint AND retry_at IS NOT NULL AND retry_at > statement_timestamp() AND retry_at <= statement_timestamp() + {{longest}} * interval '1 microsecond' ) AND (attempts > 0 OR (topic, key) NOT IN ( SELECT topic, key FROM "Shop"."box" WHERE shard = $1::smallint AND retry_at IS NOT NULL AND attempts > 0 ))) ORDER BY id LIMIT $2::bigint

DELETE FROM "Shop"."box" WHERE shard = $1::smallint AND id = ANY (ARRAY(SELECT unnest($2::text::bigint[])))

UPDATE "Shop"."box" SET attempts = attempts + $1::integer, retry_at = clock_timestamp() + $2::bigint * interval '1 microsecond' WHERE shard = $3::smallint AND id = ANY (ARRAY(SELECT unnest($4::text::bigint[])))

INSERT INTO "Shop"."box_parked" (id, shard, attempts, created_at, reason, topic, dedup_id, key, headers, payload) SELECT id, shard, attempts + 1, created_at, $1::text, topic, dedup_id, key, headers, payload FROM "Shop"."box" WHERE shard = $2::smallint AND id = $3::bigint

SELECT (SELECT count(*) FROM (SELECT 1 FROM "Shop"."box" LIMIT $1::bigint) AS p), (SELECT count(*) FROM (SELECT 1 FROM "Shop"."box_parked" LIMIT $2::bigint) AS q), coalesce((SELECT (extract(epoch FROM clock_timestamp() - min(one.created_at)) * 1000000)::bigint FROM generate_series(0, 15) AS s, LATERAL (SELECT created_at FROM "Shop"."box" WHERE shard = s ORDER BY id LIMIT 1) AS one), 0)

SELECT id, topic, dedup_id, key, headers, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, attempts, reason, (extract(epoch FROM created_at) * 1000000)::bigint, (extract(epoch FROM parked_at) * 1000000)::bigint FROM "Shop"."box_parked" WHERE id > $1::bigint ORDER BY id LIMIT $2::bigint

INSERT INTO "Shop"."box" (shard, topic, dedup_id, key, headers, payload) SELECT shard, topic, dedup_id, key, headers, payload FROM "Shop"."box_parked" WHERE id = $1::bigint FOR UPDATE

DELETE FROM "Shop"."box_parked" WHERE id = $1::bigint

SELECT id, shard, attempts, created_at, retry_at, topic, dedup_id, key, headers, payload FROM "Shop"."box" WHERE 1 = 0

SELECT id, shard, attempts, created_at, parked_at, reason, topic, dedup_id, key, headers, payload FROM "Shop"."box_parked" WHERE 1 = 0
