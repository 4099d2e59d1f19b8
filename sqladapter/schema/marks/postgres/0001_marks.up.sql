-- One row per mark: an operation whose effect was committed together with this row.
-- id is the first 128 bits of SHA-256 over (namespace, scope, key): uuid is the smallest
-- fixed binary column, it has no collation, and the key itself is never stored.
-- stamp is the clock in milliseconds since 1970 times 2^20, and 20 random bits of the
-- statement that wrote the row. fingerprint is a digest of the payload, or null.
CREATE TABLE IF NOT EXISTS {{table}} (
    id          uuid   NOT NULL PRIMARY KEY,
    stamp       bigint NOT NULL,
    fingerprint bytea  CHECK (octet_length(fingerprint) = 17)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- What effects have returned, of those marks that have something: apart, so that the table
-- every message goes through stays small.
CREATE TABLE IF NOT EXISTS {{table:_results}} (
    id     uuid  NOT NULL PRIMARY KEY,
    result bytea NOT NULL
);

-- Serves retention alone: the oldest marks. In steps of 1024 ms, so that equal entries
-- share a posting list.
CREATE INDEX IF NOT EXISTS {{index:_expiry}} ON {{table}} ((stamp >> 30));

-- One row: how long marks are kept, the longest that any user of the table has asked for.
CREATE TABLE IF NOT EXISTS {{table:_meta}} (
    one       smallint NOT NULL PRIMARY KEY CHECK (one = 1),
    window_ms bigint   NOT NULL CHECK (window_ms > 0)
);
{{raise_window}};
