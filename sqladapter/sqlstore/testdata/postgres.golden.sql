-- One row per key: a claim while an owner works on it, then the record that it is done.
-- id is the first 128 bits of SHA-256 over (namespace, scope, key), so that the key itself
-- is never stored. Instants are microseconds since 1970 by this database's clock.
-- state: 0 absent (forgotten: only floor counts), 1 in progress, 2 succeeded, 3 failed,
-- 4 released, 5 uncertain. flags: 1 danger, 2 ended late, 4 result not kept,
-- 8 result of no bytes.
-- since: when it ended, or when danger was declared. origin: source digest, partition,
-- offset, generation, big-endian. label is bytes, because a collation makes texts equal.
CREATE TABLE IF NOT EXISTS "Shop"."claims" (
    id          uuid     NOT NULL PRIMARY KEY,
    token       uuid     NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    fence       bigint   NOT NULL DEFAULT 0,
    floor       bigint   NOT NULL DEFAULT 0,
    lease_end   bigint   NOT NULL DEFAULT 0,
    since       bigint   NOT NULL DEFAULT 0,
    expires     bigint   NOT NULL DEFAULT 0,
    attempt     integer  NOT NULL DEFAULT 0,
    state       smallint NOT NULL DEFAULT 0,
    flags       smallint NOT NULL DEFAULT 0,
    asked       smallint NOT NULL DEFAULT 0,
    fingerprint bytea,
    origin      bytea,
    label       bytea,
    steps       bytea,
    result      bytea
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

-- Serves the sweeper: what has expired.
CREATE INDEX IF NOT EXISTS "claims_expires" ON "Shop"."claims" (expires);

-- Serves the sweeper, the resolver and operators: what has not ended.
CREATE INDEX IF NOT EXISTS "claims_open" ON "Shop"."claims" (state, lease_end) WHERE state IN (1, 5);

-- How often something was forgotten, for caches of finished keys.
CREATE TABLE IF NOT EXISTS "Shop"."claims_forgets" (
    one smallint NOT NULL PRIMARY KEY CHECK (one = 1),
    n   bigint   NOT NULL
);

INSERT INTO "Shop"."claims_forgets" (one, n) VALUES (1, 0) ON CONFLICT (one) DO NOTHING;

CREATE TABLE IF NOT EXISTS "Shop"."onceward_migrations" (component text COLLATE "C" NOT NULL, table_name text COLLATE "C" NOT NULL, version integer NOT NULL, PRIMARY KEY (component, table_name));

INSERT INTO "Shop"."onceward_migrations" (component, table_name, version) VALUES ('store', 'claims', 1) ON CONFLICT (component, table_name) DO UPDATE SET version = excluded.version;


INSERT INTO "Shop"."claims" (id) SELECT * FROM unnest($1::text::uuid[]) ON CONFLICT (id) DO NOTHING

SELECT uuid_send(r.id), uuid_send(r.token), r.state, r.flags, r.asked, r.attempt, r.fence, r.floor, r.lease_end, r.since, r.expires, r.fingerprint, r.origin, r.label, r.steps, r.result, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM (SELECT s.* FROM "Shop"."claims" AS s JOIN unnest($1::text::uuid[]) AS b(id) USING (id)) AS r

SELECT uuid_send(r.id), uuid_send(r.token), r.state, r.flags, r.asked, r.attempt, r.fence, r.floor, r.lease_end, r.since, r.expires, r.fingerprint, r.origin, r.label, r.steps, r.result, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM (SELECT s.* FROM "Shop"."claims" AS s JOIN unnest($1::text::uuid[]) AS b(id) USING (id) ORDER BY s.id FOR UPDATE OF s) AS r

UPDATE "Shop"."claims" AS s SET token = v.token, state = v.state, flags = v.flags, asked = v.asked, attempt = v.attempt, fence = v.fence, floor = v.floor, lease_end = v.lease_end, since = v.since, expires = v.expires, fingerprint = v.fingerprint, origin = v.origin, label = v.label, steps = v.steps, result = v.result FROM unnest($1::text::uuid[], $2::text::uuid[], $3::text::smallint[], $4::text::smallint[], $5::text::smallint[], $6::text::integer[], $7::text::bigint[], $8::text::bigint[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bytea[], $13::text::bytea[], $14::text::bytea[], $15::text::bytea[], $16::text::bytea[]) AS v(id, token, state, flags, asked, attempt, fence, floor, lease_end, since, expires, fingerprint, origin, label, steps, result) WHERE s.id = v.id

DELETE FROM "Shop"."claims" WHERE id = ANY ($1::text::uuid[])

SELECT uuid_send(r.id), uuid_send(r.token), r.state, r.flags, r.asked, r.attempt, r.fence, r.floor, r.lease_end, r.since, r.expires, r.fingerprint, r.origin, r.label, r.steps, NULL::bytea, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM (SELECT * FROM "Shop"."claims" WHERE expires <= (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) ORDER BY expires LIMIT $1::bigint FOR UPDATE SKIP LOCKED) AS r

SELECT uuid_send(r.id), uuid_send(r.token), r.state, r.flags, r.asked, r.attempt, r.fence, r.floor, r.lease_end, r.since, r.expires, r.fingerprint, r.origin, r.label, r.steps, NULL::bytea, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM (SELECT * FROM "Shop"."claims" WHERE state = 1 AND lease_end <= (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) ORDER BY lease_end LIMIT $1::bigint FOR UPDATE SKIP LOCKED) AS r

SELECT uuid_send(id), uuid_send(token), state, flags, asked, attempt, fence, floor, lease_end, since, expires, fingerprint, origin, label, steps, NULL::bytea, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM "Shop"."claims" WHERE state IN (1, 5) AND id > $1::text::uuid ORDER BY id LIMIT $2::bigint

SELECT uuid_send(id), uuid_send(token), state, flags, asked, attempt, fence, floor, lease_end, since, expires, fingerprint, origin, label, steps, NULL::bytea, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM "Shop"."claims" WHERE state IN (1) AND id > $1::text::uuid ORDER BY id LIMIT $2::bigint

SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint

SELECT uuid_send(id), state, since, expires, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM "Shop"."claims" WHERE state NOT IN (0, 4) AND expires >= $1::bigint ORDER BY expires LIMIT $2::bigint

UPDATE "Shop"."claims_forgets" SET n = n + 1

SELECT n FROM "Shop"."claims_forgets"

WITH clock AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) INSERT INTO "Shop"."claims" AS s (id, token, state, attempt, fence, lease_end, expires, fingerprint, origin, label) SELECT v.id, v.token, 1, 1, now / 1000 * 1024, now + v.lease, now + v.lease + v.hold, v.fingerprint, v.origin, v.label FROM unnest($1::text::uuid[], $2::text::uuid[], $3::text::bigint[], $4::text::bigint[], $5::text::bytea[], $6::text::bytea[], $7::text::bytea[]) AS v(id, token, lease, hold, fingerprint, origin, label), clock ON CONFLICT (id) DO NOTHING RETURNING uuid_send(s.id), uuid_send(s.token), s.state, s.flags, s.asked, s.attempt, s.fence, s.floor, s.lease_end, s.since, s.expires, s.fingerprint, s.origin, s.label, s.steps, s.result, (SELECT now FROM clock)

WITH held AS MATERIALIZED (SELECT s.id, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now, v.state, v.flags, v.keep, v.fingerprint, v.origin, v.label, v.result FROM "Shop"."claims" AS s JOIN unnest($1::text::uuid[], $2::text::uuid[], $3::text::smallint[], $4::text::smallint[], $5::text::bigint[], $6::text::bytea[], $7::text::bytea[], $8::text::bytea[], $9::text::bytea[], $10::text::bigint[]) AS v(id, token, state, flags, keep, fingerprint, origin, label, result, fence) USING (id) WHERE CASE WHEN s.token = v.token AND v.fence IN (0, s.fence) AND s.state = 1 AND s.flags BETWEEN 0 AND 15 AND s.expires > (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) THEN true ELSE false END ORDER BY s.id FOR UPDATE OF s) UPDATE "Shop"."claims" AS s SET state = v.state, flags = v.flags, asked = 0, since = v.now, expires = v.now + v.keep, lease_end = least(s.lease_end, v.now), fingerprint = coalesce(v.fingerprint, s.fingerprint), origin = coalesce(v.origin, s.origin), label = coalesce(v.label, s.label), steps = NULL, result = v.result FROM held AS v WHERE s.id = v.id RETURNING uuid_send(s.id), uuid_send(s.token), s.state, s.flags, s.asked, s.attempt, s.fence, s.floor, s.lease_end, s.since, s.expires, s.fingerprint, s.origin, s.label, s.steps, NULL::bytea, v.now
