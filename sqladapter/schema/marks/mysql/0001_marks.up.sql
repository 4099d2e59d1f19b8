-- One row per mark: an operation whose effect was committed together with this row.
-- id is the first 128 bits of SHA-256 over (namespace, scope, key), in binary: a collation
-- would make different keys equal. owner is 63 random bits of the statement that wrote the
-- row, created_at the clock in milliseconds since 1970, and fingerprint a digest of the
-- payload, or null. The index serves retention alone.
CREATE TABLE IF NOT EXISTS {{table}} (
    id          BINARY(16)      NOT NULL PRIMARY KEY,
    owner       BIGINT UNSIGNED NOT NULL,
    created_at  BIGINT          NOT NULL DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000),
    fingerprint VARBINARY(17)   NULL,
    KEY {{index:_expiry}} (created_at)
) ENGINE=InnoDB;

-- What effects have returned, of those marks that have something: apart, so that the table
-- every message goes through stays small.
CREATE TABLE IF NOT EXISTS {{table:_results}} (
    id     BINARY(16) NOT NULL PRIMARY KEY,
    result LONGBLOB   NOT NULL
) ENGINE=InnoDB;

-- One row: how long marks are kept, the longest that any user of the table has asked for.
CREATE TABLE IF NOT EXISTS {{table:_meta}} (
    one       TINYINT NOT NULL PRIMARY KEY,
    window_ms BIGINT  NOT NULL
) ENGINE=InnoDB;
{{raise_window}};
