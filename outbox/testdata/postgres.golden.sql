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

-- Messages that are not to be published before a time. When it has come, a relay moves them to the
-- messages, where they get an id then, and with it their place among those of their key.
CREATE TABLE IF NOT EXISTS "Shop"."box_scheduled" (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    not_before timestamptz NOT NULL,
    shard      smallint    NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic      text        COLLATE "C" NOT NULL,
    dedup_id   text        COLLATE "C" NOT NULL,
    key        bytea       NOT NULL,
    headers    bytea       NOT NULL,
    payload    bytea
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE INDEX IF NOT EXISTS "box_due" ON "Shop"."box_scheduled" (not_before, id);

-- Messages that are published, for as long as Config.History says, in the order of publishing.
CREATE TABLE IF NOT EXISTS "Shop"."box_published" (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    shard        smallint    NOT NULL,
    attempts     integer     NOT NULL,
    created_at   timestamptz NOT NULL,
    published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic        text        COLLATE "C" NOT NULL,
    dedup_id     text        COLLATE "C" NOT NULL,
    key          bytea       NOT NULL,
    headers      bytea       NOT NULL,
    payload      bytea
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- The shard of a key; of a message without a key that of its dedup_id. It is FNV-1a of 64 bits, of
-- which only the lower 36 matter here: ((h >> 32) xor h) modulo 16.
CREATE OR REPLACE FUNCTION "Shop"."box_shard"(key bytea) RETURNS smallint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $body$
DECLARE
    h bigint := 19396698917; -- the lower 36 bits of the offset basis
BEGIN
    FOR i IN 0 .. length(key) - 1 LOOP
        h := ((h # get_byte(key, i)) * 435) & 68719476735; -- of the prime 2^40 + 435
    END LOOP; --
    RETURN ((h >> 32) # h) & 15; --
END $body$;

-- Headers in the form of the column: the byte 1, their number, and of each the length of its name,
-- the name, the length of its value and one (zero for null), and the value. Numbers are varints,
-- seven bits a byte, the lower ones first. The argument is an object of texts.
CREATE OR REPLACE FUNCTION "Shop"."box_headers"(headers jsonb) RETURNS bytea
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $body$
DECLARE
    encoded bytea := '\x01'; --
    n bigint; --
    part bytea; --
BEGIN
    FOR n, part IN
        SELECT p.n, p.part FROM (
            SELECT 0 AS no, 0 AS k, count(*) AS n, ''::bytea AS part FROM jsonb_object_keys(coalesce(headers, '{}'))
            UNION ALL
            SELECT h.no, p.k, p.n, p.part
            FROM jsonb_each_text(coalesce(headers, '{}')) WITH ORDINALITY AS h(header, content, no),
            LATERAL (VALUES (1, octet_length(convert_to(h.header, 'UTF8')), convert_to(h.header, 'UTF8')),
                (2, coalesce(octet_length(convert_to(h.content, 'UTF8')) + 1, 0), coalesce(convert_to(h.content, 'UTF8'), ''))) AS p(k, n, part)
        ) AS p ORDER BY p.no, p.k
    LOOP
        WHILE n > 127 LOOP
            encoded := encoded || set_byte('\x00', 0, (n & 127 | 128)::integer); --
            n := n >> 7; --
        END LOOP; --
        encoded := encoded || set_byte('\x00', 0, n::integer) || part; --
    END LOOP; --
    RETURN encoded; --
END $body$;

-- Inserts a message, as Outbox.InsertTx does, and returns its dedup_id. For triggers, and for
-- programs that are not written in Go.
CREATE OR REPLACE FUNCTION "Shop"."box_insert"(topic text, key text, payload text, headers jsonb DEFAULT '{}',
    dedup_id text DEFAULT NULL, not_before timestamptz DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $body$
DECLARE
    message_id text := coalesce(nullif(dedup_id, ''), gen_random_uuid()::text); --
    key_bytes bytea := convert_to(coalesce(key, ''), 'UTF8'); --
    shard_no smallint; --
BEGIN
    IF topic IS NULL OR topic !~ '^[!-~]{1,249}$' THEN
        RAISE EXCEPTION 'outbox: topic must be 1 to 249 characters of printable ASCII without spaces' USING ERRCODE = '22023'; --
    ELSIF octet_length(convert_to(message_id, 'UTF8')) > 255 OR message_id ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'outbox: dedup_id must have at most 255 bytes, and no control characters' USING ERRCODE = '22023'; --
    ELSIF length(key_bytes) > 4096 THEN
        RAISE EXCEPTION 'outbox: key must have at most 4096 bytes' USING ERRCODE = '22023'; --
    ELSIF not_before < 'epoch' OR not_before >= '2200-01-01 00:00:00+00' THEN
        RAISE EXCEPTION 'outbox: not_before must be in the years 1970 to 2199' USING ERRCODE = '22023'; --
    END IF; --
    shard_no := "Shop"."box_shard"(CASE WHEN key_bytes = '' THEN convert_to(message_id, 'UTF8') ELSE key_bytes END); --
    IF not_before IS NULL THEN
        INSERT INTO "Shop"."box" (shard, topic, dedup_id, key, headers, payload)
        VALUES (shard_no, topic, message_id, key_bytes, "Shop"."box_headers"(headers), convert_to(payload, 'UTF8')); --
    ELSE
        INSERT INTO "Shop"."box_scheduled" (not_before, shard, topic, dedup_id, key, headers, payload)
        VALUES (not_before, shard_no, topic, message_id, key_bytes, "Shop"."box_headers"(headers), convert_to(payload, 'UTF8')); --
    END IF; --
    RETURN message_id; --
END $body$;

CREATE TABLE IF NOT EXISTS "Shop"."onceward_migrations" (component text COLLATE "C" NOT NULL, table_name text COLLATE "C" NOT NULL, version integer NOT NULL, PRIMARY KEY (component, table_name));

INSERT INTO "Shop"."onceward_migrations" (component, table_name, version) VALUES ('outbox', 'box', 2) ON CONFLICT (component, table_name) DO UPDATE SET version = excluded.version;


INSERT INTO "Shop"."box" (shard, topic, dedup_id, key, headers, payload) VALUES ($1::smallint, $2::text, $3::text, $4::bytea, $5::bytea, $6::bytea), ($7::smallint, $8::text, $9::text, $10::bytea, $11::bytea, $12::bytea)

INSERT INTO "Shop"."box_scheduled" (shard, topic, dedup_id, key, headers, payload, not_before) VALUES ($1::smallint, $2::text, $3::text, $4::bytea, $5::bytea, $6::bytea, 'epoch'::timestamptz + $7::bigint * interval '1 microsecond')

SELECT s FROM generate_series(0, 15) AS s, LATERAL (SELECT 1 FROM "Shop"."box" WHERE shard = s ORDER BY id LIMIT 1) AS one

SELECT s FROM generate_series(0, 15) AS s, LATERAL (SELECT 1 FROM "Shop"."box" WHERE shard = s AND id > ($1::text::bigint[])[s + 1] ORDER BY id LIMIT 1) AS one

SELECT coalesce((SELECT id FROM "Shop"."box" WHERE shard = $1::smallint ORDER BY id DESC LIMIT 1), 0)

SELECT coalesce((SELECT max(one.id) FROM generate_series(0, 15) AS s, LATERAL (SELECT id FROM "Shop"."box" WHERE shard = s AND id > ($1::text::bigint[])[s + 1] ORDER BY id DESC LIMIT 1) AS one), 0), CASE WHEN pg_is_in_recovery() OR bool_or(l.pid = pg_backend_pid()) IS NOT TRUE THEN 0 ELSE (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint END, coalesce(string_agg(CASE WHEN l.pid IS NULL THEN 'prepared' ELSE l.virtualtransaction END, ' ') FILTER (WHERE l.mode = 'RowExclusiveLock'), '') FROM pg_locks AS l WHERE l.locktype = 'relation' AND l.granted AND l.relation = '"Shop"."box"'::regclass AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())

SELECT CASE WHEN pg_try_advisory_xact_lock(('"Shop"."box"'::regclass::oid::bigint - 2147483648)::integer, $1::integer) AND set_config('idle_in_transaction_session_timeout', '{{idle}}', true) IS NOT NULL THEN (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint ELSE 0 END



SELECT id, topic, dedup_id, key, headers, payload, attempts, CASE WHEN retry_at > statement_timestamp() AND retry_at <= statement_timestamp() + {{longest}} * interval '1 microsecond' THEN 1 ELSE 0 END, CASE WHEN payload IS NULL THEN 1 ELSE 0 END FROM "Shop"."box" WHERE shard = $1::smallint AND id > $3::bigint{{topics}} ORDER BY id LIMIT $2::bigint

SELECT id, topic, dedup_id, key, headers, payload, attempts, 0, CASE WHEN payload IS NULL THEN 1 ELSE 0 END FROM "Shop"."box" WHERE shard = $1::smallint AND id > $3::bigint{{topics}} AND (retry_at IS NULL OR retry_at <= statement_timestamp() OR retry_at > statement_timestamp() + {{longest}} * interval '1 microsecond') AND (key = ''::bytea OR (topic, key) NOT IN ( SELECT topic, key FROM "Shop"."box" WHERE shard = $1::smallint AND retry_at IS NOT NULL AND retry_at > statement_timestamp() AND retry_at <= statement_timestamp() + {{longest}} * interval '1 microsecond' ) AND (attempts > 0 OR (topic, key) NOT IN ( SELECT topic, key FROM "Shop"."box" WHERE shard = $1::smallint AND retry_at IS NOT NULL AND attempts > 0 ))) ORDER BY id LIMIT $2::bigint

SELECT (SELECT count(*) FROM (SELECT 1 FROM generate_series(0, 15) AS s, LATERAL (SELECT 1 FROM "Shop"."box" WHERE shard = s AND id > CASE WHEN (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint = $5::bigint THEN ($4::text::bigint[])[s + 1] ELSE 0 END ORDER BY id LIMIT $1::bigint) AS one LIMIT $1::bigint) AS p), (SELECT count(*) FROM (SELECT 1 FROM "Shop"."box_parked" LIMIT $2::bigint) AS q), (SELECT count(*) FROM (SELECT 1 FROM "Shop"."box_scheduled" LIMIT $3::bigint) AS r), greatest(coalesce((SELECT (extract(epoch FROM clock_timestamp() - min(one.created_at)) * 1000000)::bigint FROM generate_series(0, 15) AS s, LATERAL (SELECT created_at FROM "Shop"."box" WHERE shard = s AND id > CASE WHEN (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint = $5::bigint THEN ($4::text::bigint[])[s + 1] ELSE 0 END ORDER BY id LIMIT 1) AS one), 0), coalesce((SELECT (extract(epoch FROM clock_timestamp() - greatest(least(not_before, '2200-01-01'::timestamptz), created_at)) * 1000000)::bigint FROM "Shop"."box_scheduled" ORDER BY not_before, id LIMIT 1), 0))

SELECT kind, name, age, who, application, state, query FROM ( SELECT 'session' AS kind, pid::text AS name, coalesce((extract(epoch FROM clock_timestamp() - xact_start) * 1000000)::bigint, 0) AS age, coalesce(usename::text, '') AS who, coalesce(application_name, '') AS application, coalesce(state, '') AS state, left(coalesce(query, ''), 500) AS query, age(backend_xmin) AS xids FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND (datname = current_database() OR datname IS NULL) AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum) UNION ALL SELECT 'prepared transaction', gid, (extract(epoch FROM clock_timestamp() - prepared) * 1000000)::bigint, owner::text, '', 'prepared', '', age(transaction) FROM pg_prepared_xacts WHERE database = current_database() UNION ALL SELECT 'replication slot', slot_name::text, 0, '', '', CASE WHEN active THEN 'active' ELSE 'inactive' END, '', age(xmin) FROM pg_replication_slots WHERE xmin IS NOT NULL ) AS one ORDER BY xids DESC, age DESC LIMIT 1



DELETE FROM "Shop"."box" WHERE shard = $1::smallint AND id = ANY (ARRAY(SELECT unnest($2::text::bigint[])))

UPDATE "Shop"."box" SET attempts = attempts + $1::integer, retry_at = clock_timestamp() + $2::bigint * interval '1 microsecond' WHERE shard = $3::smallint AND id = ANY (ARRAY(SELECT unnest($4::text::bigint[])))

INSERT INTO "Shop"."box_parked" (id, shard, attempts, created_at, reason, topic, dedup_id, key, headers, payload) SELECT id, shard, attempts + 1, created_at, $1::text, topic, dedup_id, key, headers, payload FROM "Shop"."box" WHERE shard = $2::smallint AND id = $3::bigint

SELECT (SELECT count(*) FROM (SELECT 1 FROM "Shop"."box" LIMIT $1::bigint) AS p), (SELECT count(*) FROM (SELECT 1 FROM "Shop"."box_parked" LIMIT $2::bigint) AS q), (SELECT count(*) FROM (SELECT 1 FROM "Shop"."box_scheduled" LIMIT $3::bigint) AS r), greatest(coalesce((SELECT (extract(epoch FROM clock_timestamp() - min(one.created_at)) * 1000000)::bigint FROM generate_series(0, 15) AS s, LATERAL (SELECT created_at FROM "Shop"."box" WHERE shard = s ORDER BY id LIMIT 1) AS one), 0), coalesce((SELECT (extract(epoch FROM clock_timestamp() - greatest(least(not_before, '2200-01-01'::timestamptz), created_at)) * 1000000)::bigint FROM "Shop"."box_scheduled" ORDER BY not_before, id LIMIT 1), 0))

SELECT id, topic, dedup_id, key, headers, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, attempts, reason, (extract(epoch FROM created_at) * 1000000)::bigint, (extract(epoch FROM parked_at) * 1000000)::bigint FROM "Shop"."box_parked" WHERE id > $1::bigint ORDER BY id LIMIT $2::bigint

INSERT INTO "Shop"."box" (shard, topic, dedup_id, key, headers, payload) SELECT shard, topic, dedup_id, key, headers, payload FROM "Shop"."box_parked" WHERE id = $1::bigint FOR UPDATE

DELETE FROM "Shop"."box_parked" WHERE id = $1::bigint

SELECT ceil(extract(epoch FROM greatest(least(not_before, '2200-01-01'::timestamptz), 'epoch'::timestamptz) - clock_timestamp()) * 1000000)::bigint FROM "Shop"."box_scheduled" ORDER BY not_before, id LIMIT 1

SELECT 1 WHERE pg_try_advisory_xact_lock(('"Shop"."box"'::regclass::oid::bigint - 2147483648)::integer, 16)

SELECT id, (extract(epoch FROM greatest(not_before, 'epoch'::timestamptz)) * 1000000)::bigint FROM "Shop"."box_scheduled" WHERE not_before <= statement_timestamp() AND not_before >= CASE WHEN $1::bigint < 0 THEN '-infinity'::timestamptz ELSE 'epoch'::timestamptz + $1::bigint * interval '1 microsecond' END ORDER BY not_before, id LIMIT $2::bigint

INSERT INTO "Shop"."box" (shard, created_at, topic, dedup_id, key, headers, payload) SELECT shard, greatest(created_at, not_before), topic, dedup_id, key, headers, payload FROM "Shop"."box_scheduled" WHERE id = ANY (ARRAY(SELECT unnest($1::text::bigint[]))) ORDER BY not_before, id

DELETE FROM "Shop"."box_scheduled" WHERE id = ANY (ARRAY(SELECT unnest($1::text::bigint[])))

INSERT INTO "Shop"."box_published" (shard, attempts, created_at, topic, dedup_id, key, headers, payload) SELECT shard, attempts, created_at, topic, dedup_id, key, headers, payload FROM "Shop"."box" WHERE shard = $1::smallint AND id = ANY (ARRAY(SELECT unnest($2::text::bigint[]))) ORDER BY id

SELECT id, CASE WHEN abs(extract(epoch FROM clock_timestamp() - published_at) * 1000000) > $1::bigint THEN 1 ELSE 0 END FROM "Shop"."box_published" WHERE id > $2::bigint ORDER BY id LIMIT $3::bigint

DELETE FROM "Shop"."box_published" WHERE id = ANY (ARRAY(SELECT unnest($1::text::bigint[])))

SELECT id, topic, dedup_id, key, headers, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, attempts, (extract(epoch FROM created_at) * 1000000)::bigint, (extract(epoch FROM published_at) * 1000000)::bigint FROM "Shop"."box_published" WHERE id > $1::bigint ORDER BY id LIMIT $2::bigint

SELECT id, shard, attempts, created_at, retry_at, topic, dedup_id, key, headers, payload FROM "Shop"."box" WHERE 1 = 0

SELECT id, shard, attempts, created_at, parked_at, reason, topic, dedup_id, key, headers, payload FROM "Shop"."box_parked" WHERE 1 = 0

SELECT id, not_before, shard, created_at, topic, dedup_id, key, headers, payload FROM "Shop"."box_scheduled" WHERE 1 = 0

SELECT id, shard, attempts, created_at, published_at, topic, dedup_id, key, headers, payload FROM "Shop"."box_published" WHERE 1 = 0
