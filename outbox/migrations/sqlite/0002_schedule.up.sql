-- Messages that are not to be published before a time. When it has come, a relay moves them to the
-- messages, where they get an id then, and with it their place among those of their key.
CREATE TABLE IF NOT EXISTS {{table:_scheduled}} (
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

CREATE INDEX IF NOT EXISTS {{index:_due}} ON {{bare:_scheduled}} (not_before, id);

-- Messages that are published, for as long as Config.History says, in the order of publishing.
CREATE TABLE IF NOT EXISTS {{table:_published}} (
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
