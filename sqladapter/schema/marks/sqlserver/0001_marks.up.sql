-- One row per mark: an operation whose effect was committed together with this row.
-- id is the first 128 bits of SHA-256 over (namespace, scope, key), in binary: a collation
-- would make different keys equal. owner is 63 random bits of the statement that wrote the
-- row, created_at the clock in milliseconds since 1970, and fingerprint a digest of the
-- payload, or null. A row that is there is left out of an INSERT, which is no error. The index
-- serves retention alone.
IF OBJECT_ID(N'{{table}}', N'U') IS NULL
CREATE TABLE {{table}} (
    id          binary(16)    NOT NULL PRIMARY KEY CLUSTERED WITH (IGNORE_DUP_KEY = ON),
    owner       bigint        NOT NULL,
    created_at  bigint        NOT NULL DEFAULT (DATEDIFF_BIG(millisecond, CAST('19700101' AS datetime2(3)), SYSUTCDATETIME())),
    fingerprint varbinary(17) NULL CHECK (DATALENGTH(fingerprint) = 17),
    INDEX {{index:_expiry}} NONCLUSTERED (created_at)
);

-- What effects have returned, of those marks that have something: apart, so that the table
-- every message goes through stays small.
IF OBJECT_ID(N'{{table:_results}}', N'U') IS NULL
CREATE TABLE {{table:_results}} (
    id     binary(16)     NOT NULL PRIMARY KEY CLUSTERED WITH (IGNORE_DUP_KEY = ON),
    result varbinary(max) NOT NULL
);

-- 5000 locks of a statement would become one on the table, and hold up every mark.
ALTER TABLE {{table}} SET (LOCK_ESCALATION = DISABLE);
ALTER TABLE {{table:_results}} SET (LOCK_ESCALATION = DISABLE);

-- One row: how long marks are kept, the longest that any user of the table has asked for.
IF OBJECT_ID(N'{{table:_meta}}', N'U') IS NULL
CREATE TABLE {{table:_meta}} (
    one       smallint NOT NULL PRIMARY KEY CLUSTERED WITH (IGNORE_DUP_KEY = ON) CHECK (one = 1),
    window_ms bigint   NOT NULL CHECK (window_ms > 0)
);
{{raise_window}};
