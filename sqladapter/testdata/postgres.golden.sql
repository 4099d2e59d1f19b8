-- One row per mark: an operation whose effect was committed together with this row.
-- id is the first 128 bits of SHA-256 over (namespace, scope, key): uuid is the smallest
-- fixed binary column, it has no collation, and the key itself is never stored.
-- stamp is the clock in milliseconds since 1970 times 2^20, and 20 random bits of the
-- statement that wrote the row. fingerprint is a digest of the payload, or null.
CREATE TABLE IF NOT EXISTS "Shop"."marks" (
    id          uuid   NOT NULL PRIMARY KEY,
    stamp       bigint NOT NULL,
    fingerprint bytea  CHECK (octet_length(fingerprint) = 17)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- What effects have returned, of those marks that have something: apart, so that the table
-- every message goes through stays small.
CREATE TABLE IF NOT EXISTS "Shop"."marks_results" (
    id     uuid  NOT NULL PRIMARY KEY,
    result bytea NOT NULL
);

-- Serves retention alone: the oldest marks. In steps of 1024 ms, so that equal entries
-- share a posting list.
CREATE INDEX IF NOT EXISTS "marks_expiry" ON "Shop"."marks" ((stamp >> 30));

-- One row: how long marks are kept, the longest that any user of the table has asked for.
CREATE TABLE IF NOT EXISTS "Shop"."marks_meta" (
    one       smallint NOT NULL PRIMARY KEY CHECK (one = 1),
    window_ms bigint   NOT NULL CHECK (window_ms > 0)
);

INSERT INTO "Shop"."marks_meta" AS m (one, window_ms) VALUES (1, 9223372036854) ON CONFLICT (one) DO UPDATE SET window_ms = greatest(m.window_ms, excluded.window_ms);

-- Where retention stands in its pass over the table: the next page, the file that the page is
-- of, and when the pass began. newest_ms is when the newest mark was made of those that
-- retention has seen.
ALTER TABLE "Shop"."marks_meta"
    ADD COLUMN IF NOT EXISTS walk_page     bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS walk_file     bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS walk_begun_ms bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS newest_ms     bigint NOT NULL DEFAULT 0;

-- PostgreSQL 14 and newer reads the table page by page, so retention needs no index by age.
-- Older servers keep it. It runs in no transaction, and holds up nobody.
-- Only since server_version_num 140000.
DROP INDEX IF EXISTS "Shop"."marks_expiry";

-- What the ids of marks are: the digest, or whole seconds of the key's own time before 96 bits of
-- the digest, for keys of one kind, such as uuidv7. A table keeps the form that it was made for,
-- and marks from before this version are digests.
ALTER TABLE "Shop"."marks_meta" ADD COLUMN IF NOT EXISTS id_form text;

UPDATE "Shop"."marks_meta" SET id_form =
    CASE WHEN EXISTS (SELECT 1 FROM "Shop"."marks") THEN 'digest' ELSE 'digest' END
    WHERE id_form IS NULL;

CREATE TABLE IF NOT EXISTS "Shop"."onceward_migrations" (component text COLLATE "C" NOT NULL, table_name text COLLATE "C" NOT NULL, version integer NOT NULL, PRIMARY KEY (component, table_name));

INSERT INTO "Shop"."onceward_migrations" (component, table_name, version) VALUES ('marks', 'marks', 3) ON CONFLICT (component, table_name) DO UPDATE SET version = excluded.version;


INSERT INTO "Shop"."marks_meta" AS m (one, window_ms) VALUES (1, 9223372036854) ON CONFLICT (one) DO UPDATE SET window_ms = greatest(m.window_ms, excluded.window_ms)

INSERT INTO "Shop"."marks" (id, stamp, fingerprint) VALUES ($1::uuid, (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint << 20 | $2::bigint), $3::bytea) ON CONFLICT (id) DO NOTHING RETURNING uuid_send(id), stamp

SELECT uuid_send(m.id), m.stamp, m.fingerprint, m.stamp >> 20, (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint), r.result FROM "Shop"."marks" AS m LEFT JOIN "Shop"."marks_results" AS r ON r.id = m.id WHERE m.id = $1::uuid

INSERT INTO "Shop"."marks" (id, stamp) SELECT b.id, (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint << 20 | $2::bigint) FROM unnest($1::text::uuid[]) AS b(id) ON CONFLICT (id) DO NOTHING RETURNING uuid_send(id), stamp

SELECT uuid_send(b.id), f.stamp, f.fingerprint, f.stamp >> 20, (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint), f.result FROM unnest($1::text::uuid[]) AS b(id) CROSS JOIN LATERAL (SELECT m.stamp, m.fingerprint, r.result FROM "Shop"."marks" AS m LEFT JOIN "Shop"."marks_results" AS r ON r.id = m.id WHERE m.id = b.id OFFSET 0) AS f

SELECT uuid_send(m.id), m.stamp, m.fingerprint, m.stamp >> 20, (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint), r.result FROM "Shop"."marks" AS m LEFT JOIN "Shop"."marks_results" AS r ON r.id = m.id WHERE m.id = $1::uuid

SELECT window_ms FROM "Shop"."marks_meta"

INSERT INTO "Shop"."marks_meta" (one, window_ms) VALUES (1, $1::bigint) ON CONFLICT (one) DO UPDATE SET window_ms = excluded.window_ms

WITH gone AS (DELETE FROM "Shop"."marks" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "Shop"."marks" WHERE stamp >> 30 < least((SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint) >> 10, (SELECT max(stamp >> 30) FROM "Shop"."marks")) - $1::bigint ORDER BY stamp >> 30 LIMIT $2::bigint FOR UPDATE SKIP LOCKED)) RETURNING id), unused AS (DELETE FROM "Shop"."marks_results" AS r USING gone WHERE r.id = gone.id) SELECT uuid_send(id) FROM gone

INSERT INTO "Shop"."marks_results" (id, result) SELECT id, $2::bytea FROM "Shop"."marks" WHERE id = $1::uuid ON CONFLICT (id) DO NOTHING RETURNING uuid_send(id)

INSERT INTO "Shop"."marks" (id, stamp, fingerprint) SELECT b.id, (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint << 20 | $2::bigint), decode(b.fingerprint, 'hex') FROM unnest($1::text::uuid[], $3::text::text[]) AS b(id, fingerprint) ON CONFLICT (id) DO NOTHING RETURNING uuid_send(id), stamp

SELECT window_ms, walk_begun_ms, newest_ms, (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint), walk_page, walk_file, coalesce(pg_relation_filenode('"Shop"."marks"'), 0)::bigint, pg_relation_size('"Shop"."marks"') / current_setting('block_size')::bigint, current_setting('server_version_num')::bigint FROM "Shop"."marks_meta" FOR UPDATE SKIP LOCKED

WITH young AS MATERIALIZED (SELECT least($4::bigint, greatest($3::bigint, (SELECT max(stamp >> 20) FROM "Shop"."marks" WHERE ctid >= format('(%s,0)', $1::bigint)::tid AND ctid < format('(%s,0)', $2::bigint)::tid), (SELECT max(f.stamp >> 20) FROM unnest($7::text::bigint[]) AS b(page) CROSS JOIN LATERAL (SELECT stamp FROM "Shop"."marks" WHERE ctid >= format('(%s,0)', b.page)::tid AND ctid < format('(%s,0)', b.page + 1)::tid OFFSET 0) AS f))) AS ms), gone AS (DELETE FROM "Shop"."marks" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "Shop"."marks" WHERE ctid >= format('(%s,0)', $1::bigint)::tid AND ctid < format('(%s,0)', $2::bigint)::tid AND stamp < greatest((SELECT ms FROM young) - $5::bigint, 0) << 20 LIMIT $6::bigint)) AND stamp < greatest((SELECT ms FROM young) - $5::bigint, 0) << 20 RETURNING id), unused AS (DELETE FROM "Shop"."marks_results" WHERE id = ANY (ARRAY(SELECT id FROM gone))) SELECT count(*), (SELECT ms FROM young) FROM gone

UPDATE "Shop"."marks_meta" SET walk_page = $1::bigint, walk_file = $2::bigint, walk_begun_ms = $3::bigint, newest_ms = $4::bigint
