-- One row per mark: an operation whose effect was committed together with this row.
-- id is the first 128 bits of SHA-256 over (namespace, scope, key), so that the key
-- itself is never stored. stamp is the clock in milliseconds since 1970 times 2^20, and
-- 20 random bits of the statement that wrote the row. fingerprint is a digest of the
-- payload, or null.
CREATE TABLE IF NOT EXISTS {{table}} (
    id          BLOB    NOT NULL PRIMARY KEY CHECK (typeof(id) = 'blob' AND length(id) = 16),
    stamp       INTEGER NOT NULL,
    fingerprint BLOB    CHECK (length(fingerprint) = 17)
) WITHOUT ROWID;

-- What effects have returned, of those marks that have something: apart, so that the table
-- every message goes through stays small.
CREATE TABLE IF NOT EXISTS {{table:_results}} (
    id     BLOB NOT NULL PRIMARY KEY,
    result BLOB NOT NULL
);

-- Serves retention alone: the oldest marks, in steps of 1024 ms.
CREATE INDEX IF NOT EXISTS {{index:_expiry}} ON {{bare}} (stamp >> 30);

-- One row: how long marks are kept, the longest that any user of the table has asked for.
CREATE TABLE IF NOT EXISTS {{table:_meta}} (
    one       INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    window_ms INTEGER NOT NULL CHECK (window_ms > 0)
);
{{raise_window}};
