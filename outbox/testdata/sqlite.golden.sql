-- One row per message that is not known to be published. All are of one shard, because there
-- is one writer; id orders them and, with AUTOINCREMENT, is never used again. Times count
-- milliseconds since 1970. headers is a list in a binary form. dedup_id is what the consumer
-- deduplicates by. attempts counts how often the message has failed by itself; until retry_at
-- it and the later ones of its key wait.
CREATE TABLE IF NOT EXISTS "Shop"."box" (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    shard      INTEGER NOT NULL,
    attempts   INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)),
    retry_at   INTEGER,
    topic      TEXT    NOT NULL,
    dedup_id   TEXT    NOT NULL,
    key        BLOB    NOT NULL,
    headers    BLOB    NOT NULL,
    payload    BLOB
);

-- Nearly always empty: the messages that have failed.
CREATE INDEX IF NOT EXISTS "Shop"."box_held" ON "box" (id) WHERE retry_at IS NOT NULL;

-- Messages the broker has refused for good, with the reason, until somebody requeues or
-- deletes them.
CREATE TABLE IF NOT EXISTS "Shop"."box_parked" (
    id         INTEGER PRIMARY KEY,
    shard      INTEGER NOT NULL,
    attempts   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    parked_at  INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)),
    reason     TEXT    NOT NULL,
    topic      TEXT    NOT NULL,
    dedup_id   TEXT    NOT NULL,
    key        BLOB    NOT NULL,
    headers    BLOB    NOT NULL,
    payload    BLOB
);

-- Which relay may work, and until when.
CREATE TABLE IF NOT EXISTS "Shop"."box_shards" (
    shard INTEGER NOT NULL PRIMARY KEY,
    owner TEXT    NOT NULL DEFAULT '',
    until INTEGER NOT NULL DEFAULT 0
);

INSERT INTO "Shop"."box_shards" (shard) VALUES (0) ON CONFLICT (shard) DO NOTHING;

-- Messages that are not to be published before a time. When it has come, a relay moves them to the
-- messages, where they get an id then, and with it their place among those of their key.
CREATE TABLE IF NOT EXISTS "Shop"."box_scheduled" (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    not_before INTEGER NOT NULL,
    shard      INTEGER NOT NULL,
    created_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)),
    topic      TEXT    NOT NULL,
    dedup_id   TEXT    NOT NULL,
    key        BLOB    NOT NULL,
    headers    BLOB    NOT NULL,
    payload    BLOB
);

CREATE INDEX IF NOT EXISTS "Shop"."box_due" ON "box_scheduled" (not_before, id);

-- Messages that are published, for as long as Config.History says, in the order of publishing.
CREATE TABLE IF NOT EXISTS "Shop"."box_published" (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    shard        INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    published_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)),
    topic        TEXT    NOT NULL,
    dedup_id     TEXT    NOT NULL,
    key          BLOB    NOT NULL,
    headers      BLOB    NOT NULL,
    payload      BLOB
);

CREATE TABLE IF NOT EXISTS "Shop"."onceward_migrations" (component TEXT NOT NULL, table_name TEXT NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (component, table_name)) WITHOUT ROWID;

INSERT INTO "Shop"."onceward_migrations" (component, table_name, version) VALUES ('outbox', 'box', 2) ON CONFLICT (component, table_name) DO UPDATE SET version = excluded.version;


INSERT INTO "Shop"."box" (shard, topic, dedup_id, key, headers, payload) VALUES (?, ?, ?, ?, ?, ?), (?, ?, ?, ?, ?, ?)

INSERT INTO "Shop"."box_scheduled" (shard, topic, dedup_id, key, headers, payload, not_before) VALUES (?, ?, ?, ?, ?, ?, ?)

SELECT 0 WHERE EXISTS (SELECT 1 FROM "Shop"."box")

SELECT {{shard}} WHERE EXISTS (SELECT 1 FROM "Shop"."box" WHERE shard = {{shard}} AND id > ?)

SELECT coalesce((SELECT id FROM "Shop"."box" WHERE shard = ? ORDER BY id DESC LIMIT 1), 0)

SELECT coalesce((SELECT max(id) FROM "Shop"."box"), 0), 1, ''

UPDATE "Shop"."box_shards" SET owner = ?, until = (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) + ? WHERE shard = ? AND (owner = ? OR until <= (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) OR until > (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) + 3605000)

UPDATE "Shop"."box_shards" SET until = 0 WHERE owner = ?

SELECT id, topic, dedup_id, key, headers, payload, attempts, CASE WHEN retry_at > (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) AND retry_at <= (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) + {{longest}} / 1000 THEN 1 ELSE 0 END, CASE WHEN payload IS NULL THEN 1 ELSE 0 END FROM "Shop"."box" WHERE shard = ? AND id > ?{{topics}} ORDER BY id LIMIT ?

SELECT id, topic, dedup_id, key, headers, payload, attempts, 0, CASE WHEN payload IS NULL THEN 1 ELSE 0 END FROM "Shop"."box" WHERE shard = ? AND id > ?{{topics}} AND (retry_at IS NULL OR retry_at <= (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) OR retry_at > (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) + {{longest}} / 1000) AND (key = x'' OR (topic, key) NOT IN ( SELECT topic, key FROM "Shop"."box" WHERE retry_at IS NOT NULL AND retry_at > (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) AND retry_at <= (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) + {{longest}} / 1000 ) AND (attempts > 0 OR (topic, key) NOT IN ( SELECT topic, key FROM "Shop"."box" WHERE retry_at IS NOT NULL AND attempts > 0 ))) ORDER BY id LIMIT ?







DELETE FROM "Shop"."box" WHERE shard = ? AND id IN ({{ids}})

UPDATE "Shop"."box" SET attempts = attempts + ?, retry_at = (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) + ? / 1000 WHERE shard = ? AND id IN ({{ids}})

INSERT INTO "Shop"."box_parked" (id, shard, attempts, created_at, reason, topic, dedup_id, key, headers, payload) SELECT id, shard, attempts + 1, created_at, ?, topic, dedup_id, key, headers, payload FROM "Shop"."box" WHERE shard = ? AND id = ?

SELECT (SELECT count(*) FROM (SELECT 1 FROM "Shop"."box" LIMIT ?)), (SELECT count(*) FROM (SELECT 1 FROM "Shop"."box_parked" LIMIT ?)), (SELECT count(*) FROM (SELECT 1 FROM "Shop"."box_scheduled" LIMIT ?)), max(coalesce((SELECT ((SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) - created_at) * 1000 FROM "Shop"."box" ORDER BY id LIMIT 1), 0), coalesce((SELECT ((SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) - max(not_before, created_at)) * 1000 FROM "Shop"."box_scheduled" ORDER BY not_before, id LIMIT 1), 0))

SELECT id, topic, dedup_id, key, headers, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, attempts, reason, created_at * 1000, parked_at * 1000 FROM "Shop"."box_parked" WHERE id > ? ORDER BY id LIMIT ?

INSERT INTO "Shop"."box" (shard, topic, dedup_id, key, headers, payload) SELECT shard, topic, dedup_id, key, headers, payload FROM "Shop"."box_parked" WHERE id = ?

DELETE FROM "Shop"."box_parked" WHERE id = ?

SELECT (not_before - (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER))) * 1000 FROM "Shop"."box_scheduled" ORDER BY not_before, id LIMIT 1

UPDATE "Shop"."box_shards" SET until = until WHERE shard = 0 RETURNING 1

SELECT id, not_before * 1000 FROM "Shop"."box_scheduled" WHERE not_before <= (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) AND not_before >= ? / 1000 ORDER BY not_before, id LIMIT ?

INSERT INTO "Shop"."box" (shard, created_at, topic, dedup_id, key, headers, payload) SELECT shard, max(created_at, not_before), topic, dedup_id, key, headers, payload FROM "Shop"."box_scheduled" WHERE id IN ({{ids}}) ORDER BY not_before, id

DELETE FROM "Shop"."box_scheduled" WHERE id IN ({{ids}})

INSERT INTO "Shop"."box_published" (shard, attempts, created_at, topic, dedup_id, key, headers, payload) SELECT shard, attempts, created_at, topic, dedup_id, key, headers, payload FROM "Shop"."box" WHERE shard = ? AND id IN ({{ids}}) ORDER BY id

SELECT id, CASE WHEN abs((SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) - published_at) > ? / 1000 THEN 1 ELSE 0 END FROM "Shop"."box_published" WHERE id > ? ORDER BY id LIMIT ?

DELETE FROM "Shop"."box_published" WHERE id IN ({{ids}})

SELECT id, topic, dedup_id, key, headers, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, attempts, created_at * 1000, published_at * 1000 FROM "Shop"."box_published" WHERE id > ? ORDER BY id LIMIT ?

SELECT id, shard, attempts, created_at, retry_at, topic, dedup_id, key, headers, payload FROM "Shop"."box" WHERE 1 = 0

SELECT id, shard, attempts, created_at, parked_at, reason, topic, dedup_id, key, headers, payload FROM "Shop"."box_parked" WHERE 1 = 0

SELECT id, not_before, shard, created_at, topic, dedup_id, key, headers, payload FROM "Shop"."box_scheduled" WHERE 1 = 0

SELECT id, shard, attempts, created_at, published_at, topic, dedup_id, key, headers, payload FROM "Shop"."box_published" WHERE 1 = 0
