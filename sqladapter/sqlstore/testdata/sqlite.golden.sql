-- One row per key: a claim while an owner works on it, then the record that it is done.
-- id is the first 128 bits of SHA-256 over (namespace, scope, key), so that the key itself
-- is never stored. Instants are microseconds since 1970 by this machine's clock.
-- state: 0 absent (forgotten: only floor counts), 1 in progress, 2 succeeded, 3 failed,
-- 4 released, 5 uncertain. flags: 1 danger, 2 ended late, 4 result not kept,
-- 8 result of no bytes.
-- since: when it ended, or when danger was declared. origin: source digest, partition,
-- offset, generation, big-endian. label is bytes, because a collation makes texts equal.
CREATE TABLE IF NOT EXISTS "Shop"."claims" (
    id          BLOB    NOT NULL PRIMARY KEY CHECK (typeof(id) = 'blob' AND length(id) = 16),
    token       BLOB    NOT NULL DEFAULT (zeroblob(16)),
    fence       INTEGER NOT NULL DEFAULT 0,
    floor       INTEGER NOT NULL DEFAULT 0,
    lease_end   INTEGER NOT NULL DEFAULT 0,
    since       INTEGER NOT NULL DEFAULT 0,
    expires     INTEGER NOT NULL DEFAULT 0,
    attempt     INTEGER NOT NULL DEFAULT 0,
    state       INTEGER NOT NULL DEFAULT 0,
    flags       INTEGER NOT NULL DEFAULT 0,
    asked       INTEGER NOT NULL DEFAULT 0,
    fingerprint BLOB,
    origin      BLOB,
    label       BLOB,
    steps       BLOB,
    result      BLOB
) WITHOUT ROWID;

-- Serves the sweeper: what has expired.
CREATE INDEX IF NOT EXISTS "Shop"."claims_expires" ON "claims" (expires);

-- Serves the sweeper, the resolver and operators: what has not ended.
CREATE INDEX IF NOT EXISTS "Shop"."claims_open" ON "claims" (state, lease_end) WHERE state IN (1, 5);

-- How often something was forgotten, for caches of finished keys.
CREATE TABLE IF NOT EXISTS "Shop"."claims_forgets" (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    n   INTEGER NOT NULL
);

INSERT INTO "Shop"."claims_forgets" (one, n) VALUES (1, 0) ON CONFLICT (one) DO NOTHING;

CREATE TABLE IF NOT EXISTS "Shop"."onceward_migrations" (component TEXT NOT NULL, table_name TEXT NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (component, table_name)) WITHOUT ROWID;

INSERT INTO "Shop"."onceward_migrations" (component, table_name, version) VALUES ('store', 'claims', 1) ON CONFLICT (component, table_name) DO UPDATE SET version = excluded.version;


UPDATE "Shop"."claims" SET state = state WHERE id IS NULL

INSERT INTO "Shop"."claims" (id) VALUES (?), (?) ON CONFLICT (id) DO NOTHING

SELECT id, token, state, flags, asked, attempt, fence, floor, lease_end, since, expires, fingerprint, origin, label, steps, result, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 FROM "Shop"."claims" WHERE id IN (?, ?)

SELECT id, token, state, flags, asked, attempt, fence, floor, lease_end, since, expires, fingerprint, origin, label, steps, result, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 FROM "Shop"."claims" WHERE id IN (?, ?)

INSERT INTO "Shop"."claims" (id, token, state, flags, asked, attempt, fence, floor, lease_end, since, expires, fingerprint, origin, label, steps, result) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?), (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET token = excluded.token, state = excluded.state, flags = excluded.flags, asked = excluded.asked, attempt = excluded.attempt, fence = excluded.fence, floor = excluded.floor, lease_end = excluded.lease_end, since = excluded.since, expires = excluded.expires, fingerprint = excluded.fingerprint, origin = excluded.origin, label = excluded.label, steps = excluded.steps, result = excluded.result

DELETE FROM "Shop"."claims" WHERE id IN (?, ?)

SELECT id, token, state, flags, asked, attempt, fence, floor, lease_end, since, expires, fingerprint, origin, label, steps, NULL, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 FROM "Shop"."claims" WHERE expires <= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 ORDER BY expires LIMIT ?

SELECT id, token, state, flags, asked, attempt, fence, floor, lease_end, since, expires, fingerprint, origin, label, steps, NULL, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 FROM "Shop"."claims" WHERE state = 1 AND lease_end <= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 ORDER BY lease_end LIMIT ?

SELECT id, token, state, flags, asked, attempt, fence, floor, lease_end, since, expires, fingerprint, origin, label, steps, NULL, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 FROM "Shop"."claims" WHERE state IN (1, 5) AND id > ? ORDER BY id LIMIT ?

SELECT id, token, state, flags, asked, attempt, fence, floor, lease_end, since, expires, fingerprint, origin, label, steps, NULL, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 FROM "Shop"."claims" WHERE state IN (1, 5) AND state IN (1) AND id > ? ORDER BY id LIMIT ?

SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000

SELECT id, state, since, expires, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 FROM "Shop"."claims" WHERE state NOT IN (0, 4) AND expires >= ? ORDER BY expires LIMIT ?

UPDATE "Shop"."claims_forgets" SET n = n + 1

SELECT n FROM "Shop"."claims_forgets"
