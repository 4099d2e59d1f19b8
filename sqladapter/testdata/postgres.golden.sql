SELECT pg_advisory_xact_lock(hashtextextended('onceward migrate', 0))

-- One row per mark: an operation whose effect was committed together with this row.
-- id is the first 128 bits of SHA-256 over (namespace, scope, key): uuid is the smallest
-- fixed binary column, it has no collation, and the key itself is never stored.
-- owner is random per call: it tells a repeated statement from a duplicate.
-- fingerprint is a digest of the payload, or null.
CREATE TABLE IF NOT EXISTS "Shop"."marks" (
    id          uuid        NOT NULL PRIMARY KEY,
    owner       uuid        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    namespace   text        COLLATE "C" NOT NULL,
    fingerprint bytea       CHECK (octet_length(fingerprint) = 17)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- Serves retention alone: the oldest marks of one namespace.
CREATE INDEX IF NOT EXISTS "marks_created_at" ON "Shop"."marks" (namespace, created_at);

INSERT INTO "Shop"."marks" (id, owner, namespace, fingerprint) VALUES ($1::uuid, $2::uuid, $3::text, $4::bytea) ON CONFLICT (id) DO NOTHING RETURNING uuid_send(id), uuid_send(owner), fingerprint, (extract(epoch FROM created_at) * 1000000)::bigint, (extract(epoch FROM clock_timestamp() - created_at) * 1000000)::bigint

SELECT uuid_send(id), uuid_send(owner), fingerprint, (extract(epoch FROM created_at) * 1000000)::bigint, (extract(epoch FROM clock_timestamp() - created_at) * 1000000)::bigint FROM "Shop"."marks" WHERE id = $1::uuid

INSERT INTO "Shop"."marks" (id, owner, namespace, fingerprint) SELECT b.id, $2::uuid, $3::text, decode(b.fingerprint, 'hex') FROM unnest($1::text::uuid[], $4::text::text[]) AS b(id, fingerprint) ON CONFLICT (id) DO NOTHING RETURNING uuid_send(id), uuid_send(owner), fingerprint, (extract(epoch FROM created_at) * 1000000)::bigint, (extract(epoch FROM clock_timestamp() - created_at) * 1000000)::bigint

SELECT uuid_send(id), uuid_send(owner), fingerprint, (extract(epoch FROM created_at) * 1000000)::bigint, (extract(epoch FROM clock_timestamp() - created_at) * 1000000)::bigint FROM "Shop"."marks" JOIN unnest($1::text::uuid[]) AS b(id) USING (id)

DELETE FROM "Shop"."marks" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "Shop"."marks" WHERE namespace = $1::text AND created_at < least(statement_timestamp(), (SELECT max(created_at) FROM "Shop"."marks" WHERE namespace = $1::text)) - $2::bigint * interval '1 microsecond' ORDER BY created_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED))
