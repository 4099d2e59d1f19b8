-- One row per message that is not known to be published. All are of one shard, because there
-- is one writer; id orders them and, with AUTOINCREMENT, is never used again. Times count
-- milliseconds since 1970. headers is a list in a binary form. dedup_id is what the consumer
-- deduplicates by. attempts counts how often the message has failed by itself; until retry_at
-- it and the later ones of its key wait.
CREATE TABLE IF NOT EXISTS {{table}} (
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
CREATE INDEX IF NOT EXISTS {{index:_held}} ON {{bare}} (id) WHERE retry_at IS NOT NULL;

-- Messages the broker has refused for good, with the reason, until somebody requeues or
-- deletes them.
CREATE TABLE IF NOT EXISTS {{table:_parked}} (
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
CREATE TABLE IF NOT EXISTS {{table:_shards}} (
    shard INTEGER NOT NULL PRIMARY KEY,
    owner TEXT    NOT NULL DEFAULT '',
    until INTEGER NOT NULL DEFAULT 0
);

INSERT INTO {{table:_shards}} (shard) VALUES (0) ON CONFLICT (shard) DO NOTHING;
