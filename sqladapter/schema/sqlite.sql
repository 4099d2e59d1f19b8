-- One row per mark: an operation whose effect was committed together with this row.
-- id is the first 128 bits of SHA-256 over (namespace, scope, key), so that the key
-- itself is never stored. owner is random per call: it tells a repeated statement from
-- a duplicate. created_at counts milliseconds since 1970. fingerprint is a digest of
-- the payload, or null.
CREATE TABLE IF NOT EXISTS {{table}} (
    id          BLOB    NOT NULL PRIMARY KEY CHECK (typeof(id) = 'blob' AND length(id) = 16),
    owner       BLOB    NOT NULL,
    created_at  INTEGER NOT NULL,
    namespace   TEXT    NOT NULL,
    fingerprint BLOB    CHECK (length(fingerprint) = 17)
) WITHOUT ROWID;

-- Serves retention alone: the oldest marks of one namespace.
CREATE INDEX IF NOT EXISTS {{index}} ON {{bare}} (namespace, created_at);
