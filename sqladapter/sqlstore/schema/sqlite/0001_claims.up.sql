-- One row per key: a claim while an owner works on it, then the record that it is done.
-- id is the first 128 bits of SHA-256 over (namespace, scope, key), so that the key itself
-- is never stored. Instants are microseconds since 1970 by this machine's clock.
-- state: 0 absent (forgotten: only floor counts), 1 in progress, 2 succeeded, 3 failed,
-- 4 released, 5 uncertain. flags: 1 danger, 2 ended late, 4 result not kept,
-- 8 result of no bytes.
-- since: when it ended, or when danger was declared. origin: source digest, partition,
-- offset, generation, big-endian. label is bytes, because a collation makes texts equal.
CREATE TABLE IF NOT EXISTS {{table}} (
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
CREATE INDEX IF NOT EXISTS {{index:_expires}} ON {{bare}} (expires);

-- Serves the sweeper, the resolver and operators: what has not ended.
CREATE INDEX IF NOT EXISTS {{index:_open}} ON {{bare}} (state, lease_end) WHERE state IN (1, 5);

-- How often something was forgotten, for caches of finished keys.
CREATE TABLE IF NOT EXISTS {{table:_forgets}} (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    n   INTEGER NOT NULL
);

INSERT INTO {{table:_forgets}} (one, n) VALUES (1, 0) ON CONFLICT (one) DO NOTHING;
