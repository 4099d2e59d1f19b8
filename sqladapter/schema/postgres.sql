-- One row per mark: an operation whose effect was committed together with this row.
-- id is the first 128 bits of SHA-256 over (namespace, scope, key): uuid is the smallest
-- fixed binary column, it has no collation, and the key itself is never stored.
-- owner is random per call: it tells a repeated statement from a duplicate.
-- fingerprint is a digest of the payload, or null.
CREATE TABLE IF NOT EXISTS {{table}} (
    id          uuid        NOT NULL PRIMARY KEY,
    owner       uuid        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    namespace   text        COLLATE "C" NOT NULL,
    fingerprint bytea       CHECK (octet_length(fingerprint) = 17)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- Serves retention alone: the oldest marks of one namespace.
CREATE INDEX IF NOT EXISTS {{index}} ON {{table}} (namespace, created_at);
