-- One row per mark: an operation whose effect was committed together with this row.
-- id is the first 128 bits of SHA-256 over (namespace, scope, key), so that the key
-- itself is never stored. owner is random per call: it tells a repeated statement from
-- a duplicate. created_at counts milliseconds since 1970. fingerprint is a digest of
-- the payload, or null.
CREATE TABLE IF NOT EXISTS "Shop"."marks" (
    id          BLOB    NOT NULL PRIMARY KEY CHECK (typeof(id) = 'blob' AND length(id) = 16),
    owner       BLOB    NOT NULL,
    created_at  INTEGER NOT NULL,
    namespace   TEXT    NOT NULL,
    fingerprint BLOB    CHECK (length(fingerprint) = 17)
) WITHOUT ROWID;

-- Serves retention alone: the oldest marks of one namespace.
CREATE INDEX IF NOT EXISTS "Shop"."marks_created_at" ON "marks" (namespace, created_at);

INSERT INTO "Shop"."marks" (id, owner, namespace, fingerprint, created_at) VALUES (?, ?, ?, ?, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) ON CONFLICT (id) DO NOTHING RETURNING id, owner, fingerprint, created_at * 1000, (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) - created_at) * 1000

SELECT id, owner, fingerprint, created_at * 1000, (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) - created_at) * 1000 FROM "Shop"."marks" WHERE id = ?





DELETE FROM "Shop"."marks" WHERE id IN (SELECT id FROM "Shop"."marks" WHERE namespace = ?1 AND created_at < min(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), (SELECT max(created_at) FROM "Shop"."marks" WHERE namespace = ?1)) - ?2 ORDER BY created_at LIMIT ?3)
