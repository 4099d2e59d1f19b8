-- One row per key: a claim while an owner works on it, then the record that it is done.
-- id is the first 128 bits of SHA-256 over (namespace, scope, key), so that the key itself
-- is never stored. Instants are microseconds since 1970 by this database's clock.
-- state: 0 absent (forgotten: only floor counts), 1 in progress, 2 succeeded, 3 failed,
-- 4 released, 5 uncertain. flags: 1 danger, 2 ended late, 4 result not kept,
-- 8 result of no bytes.
-- since: when it ended, or when danger was declared. origin: source digest, partition,
-- offset, generation, big-endian. label is bytes, because a collation makes texts equal.
CREATE TABLE IF NOT EXISTS {{table}} (
    id          binary(16)    NOT NULL PRIMARY KEY,
    token       binary(16)    NOT NULL DEFAULT '',
    fence       bigint        NOT NULL DEFAULT 0,
    floor       bigint        NOT NULL DEFAULT 0,
    lease_end   bigint        NOT NULL DEFAULT 0,
    since       bigint        NOT NULL DEFAULT 0,
    expires     bigint        NOT NULL DEFAULT 0,
    attempt     integer       NOT NULL DEFAULT 0,
    state       smallint      NOT NULL DEFAULT 0,
    flags       smallint      NOT NULL DEFAULT 0,
    asked       smallint      NOT NULL DEFAULT 0,
    fingerprint varbinary(64),
    origin      varbinary(64),
    label       varbinary(64),
    steps       mediumblob,
    result      mediumblob,
    KEY {{index:_expires}} (expires),
    KEY {{index:_open}} (state, lease_end)
) ENGINE = InnoDB;

-- How often something was forgotten, for caches of finished keys.
CREATE TABLE IF NOT EXISTS {{table:_forgets}} (
    one smallint NOT NULL PRIMARY KEY,
    n   bigint   NOT NULL
) ENGINE = InnoDB;

INSERT INTO {{table:_forgets}} (one, n) VALUES (1, 0) ON DUPLICATE KEY UPDATE one = one;
