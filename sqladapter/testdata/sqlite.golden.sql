-- One row per mark: an operation whose effect was committed together with this row.
-- id is the first 128 bits of SHA-256 over (namespace, scope, key), so that the key
-- itself is never stored. stamp is the clock in milliseconds since 1970 times 2^20, and
-- 20 random bits of the statement that wrote the row. fingerprint is a digest of the
-- payload, or null.
CREATE TABLE IF NOT EXISTS "Shop"."marks" (
    id          BLOB    NOT NULL PRIMARY KEY CHECK (typeof(id) = 'blob' AND length(id) = 16),
    stamp       INTEGER NOT NULL,
    fingerprint BLOB    CHECK (length(fingerprint) = 17)
) WITHOUT ROWID;

-- What effects have returned, of those marks that have something: apart, so that the table
-- every message goes through stays small.
CREATE TABLE IF NOT EXISTS "Shop"."marks_results" (
    id     BLOB NOT NULL PRIMARY KEY,
    result BLOB NOT NULL
);

-- Serves retention alone: the oldest marks, in steps of 1024 ms.
CREATE INDEX IF NOT EXISTS "Shop"."marks_expiry" ON "marks" (stamp >> 30);

-- One row: how long marks are kept, the longest that any user of the table has asked for.
CREATE TABLE IF NOT EXISTS "Shop"."marks_meta" (
    one       INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    window_ms INTEGER NOT NULL CHECK (window_ms > 0)
);

INSERT INTO "Shop"."marks_meta" AS m (one, window_ms) VALUES (1, 9223372036854) ON CONFLICT (one) DO UPDATE SET window_ms = max(m.window_ms, excluded.window_ms);

CREATE TABLE IF NOT EXISTS "Shop"."onceward_migrations" (component TEXT NOT NULL, table_name TEXT NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (component, table_name)) WITHOUT ROWID;

INSERT INTO "Shop"."onceward_migrations" (component, table_name, version) VALUES ('marks', 'marks', 1) ON CONFLICT (component, table_name) DO UPDATE SET version = excluded.version;


INSERT INTO "Shop"."marks_meta" AS m (one, window_ms) VALUES (1, 9223372036854) ON CONFLICT (one) DO UPDATE SET window_ms = max(m.window_ms, excluded.window_ms)

INSERT INTO "Shop"."marks" (id, stamp, fingerprint) VALUES (?1, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) << 20 | ?2, ?3) ON CONFLICT (id) DO NOTHING RETURNING id, stamp

WITH RECURSIVE b(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM b WHERE (i + 1) * 16 < length(?1)) SELECT m.id, m.stamp, m.fingerprint, m.stamp >> 20, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), r.result FROM "Shop"."marks" AS m LEFT JOIN "Shop"."marks_results" AS r ON r.id = m.id WHERE m.id IN (SELECT substr(?1, i * 16 + 1, 16) FROM b)

INSERT INTO "Shop"."marks" (id, stamp, fingerprint) WITH RECURSIVE b(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM b WHERE (i + 1) * 16 < length(?1)) SELECT substr(?1, i * 16 + 1, 16), (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) << 20 | ?2, nullif(substr(?3, i * 17 + 1, 17), zeroblob(17)) FROM b WHERE true ON CONFLICT (id) DO NOTHING RETURNING id, stamp

WITH RECURSIVE b(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM b WHERE (i + 1) * 16 < length(?1)) SELECT m.id, m.stamp, m.fingerprint, m.stamp >> 20, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), r.result FROM "Shop"."marks" AS m LEFT JOIN "Shop"."marks_results" AS r ON r.id = m.id WHERE m.id IN (SELECT substr(?1, i * 16 + 1, 16) FROM b)

WITH RECURSIVE b(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM b WHERE (i + 1) * 16 < length(?1)) SELECT m.id, m.stamp, m.fingerprint, m.stamp >> 20, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER), r.result FROM "Shop"."marks" AS m LEFT JOIN "Shop"."marks_results" AS r ON r.id = m.id WHERE m.id IN (SELECT substr(?1, i * 16 + 1, 16) FROM b)

SELECT window_ms FROM "Shop"."marks_meta"

INSERT INTO "Shop"."marks_meta" (one, window_ms) VALUES (1, ?1) ON CONFLICT (one) DO UPDATE SET window_ms = excluded.window_ms

DELETE FROM "Shop"."marks" WHERE id IN (SELECT id FROM "Shop"."marks" WHERE stamp >> 30 < min(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) >> 10, (SELECT max(stamp >> 30) FROM "Shop"."marks")) - ?1 ORDER BY stamp >> 30 LIMIT ?2) RETURNING id

INSERT INTO "Shop"."marks_results" (id, result) SELECT id, ?2 FROM "Shop"."marks" WHERE id = ?1 ON CONFLICT (id) DO NOTHING RETURNING id

DELETE FROM "Shop"."marks_results" WHERE id IN (x'00000000000000000000000000000000', x'00000000000000000000000000000000')
