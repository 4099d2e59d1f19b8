-- One row per mark: an operation whose effect was committed together with this row.
-- id is the first 128 bits of SHA-256 over (namespace, scope, key), in binary: a collation
-- would make different keys equal. owner is 63 random bits of the statement that wrote the
-- row, created_at the clock in milliseconds since 1970, and fingerprint a digest of the
-- payload, or null. A row that is there is left out of an INSERT, which is no error. The index
-- serves retention alone.
IF OBJECT_ID(N'[Shop].[marks]', N'U') IS NULL
CREATE TABLE [Shop].[marks] (
    id          binary(16)    NOT NULL PRIMARY KEY CLUSTERED WITH (IGNORE_DUP_KEY = ON),
    owner       bigint        NOT NULL,
    created_at  bigint        NOT NULL DEFAULT (DATEDIFF_BIG(millisecond, CAST('19700101' AS datetime2(3)), SYSUTCDATETIME())),
    fingerprint varbinary(17) NULL CHECK (DATALENGTH(fingerprint) = 17),
    INDEX [marks_expiry] NONCLUSTERED (created_at)
);

-- What effects have returned, of those marks that have something: apart, so that the table
-- every message goes through stays small.
IF OBJECT_ID(N'[Shop].[marks_results]', N'U') IS NULL
CREATE TABLE [Shop].[marks_results] (
    id     binary(16)     NOT NULL PRIMARY KEY CLUSTERED WITH (IGNORE_DUP_KEY = ON),
    result varbinary(max) NOT NULL
);

-- 5000 locks of a statement would become one on the table, and hold up every mark.
ALTER TABLE [Shop].[marks] SET (LOCK_ESCALATION = DISABLE);

ALTER TABLE [Shop].[marks_results] SET (LOCK_ESCALATION = DISABLE);

-- One row: how long marks are kept, the longest that any user of the table has asked for.
IF OBJECT_ID(N'[Shop].[marks_meta]', N'U') IS NULL
CREATE TABLE [Shop].[marks_meta] (
    one       smallint NOT NULL PRIMARY KEY CLUSTERED WITH (IGNORE_DUP_KEY = ON) CHECK (one = 1),
    window_ms bigint   NOT NULL CHECK (window_ms > 0)
);

INSERT INTO [Shop].[marks_meta] (one, window_ms) SELECT 1, 9223372036854 WHERE NOT EXISTS (SELECT 1 FROM [Shop].[marks_meta] WHERE one = 1); UPDATE [Shop].[marks_meta] SET window_ms = 9223372036854 WHERE one = 1 AND window_ms < 9223372036854;

IF OBJECT_ID(N'[Shop].[onceward_migrations]', N'U') IS NULL CREATE TABLE [Shop].[onceward_migrations] (component varchar(63) COLLATE Latin1_General_100_BIN2 NOT NULL, table_name varchar(63) COLLATE Latin1_General_100_BIN2 NOT NULL, version int NOT NULL, PRIMARY KEY (component, table_name));

UPDATE [Shop].[onceward_migrations] SET version = 1 WHERE component = 'marks' AND table_name = 'marks'; IF @@ROWCOUNT = 0 INSERT INTO [Shop].[onceward_migrations] (component, table_name, version) VALUES ('marks', 'marks', 1);


INSERT INTO [Shop].[marks_meta] (one, window_ms) SELECT 1, 9223372036854 WHERE NOT EXISTS (SELECT 1 FROM [Shop].[marks_meta] WHERE one = 1); UPDATE [Shop].[marks_meta] SET window_ms = 9223372036854 WHERE one = 1 AND window_ms < 9223372036854

SET NOCOUNT OFF; SET XACT_ABORT OFF; IF XACT_STATE() <> 1 THROW 50916, N'onceward: there is no transaction that can be committed', 1; INSERT INTO [Shop].[marks] (id, owner, fingerprint) VALUES (CAST(@p2 AS binary(16)), @p1, CAST(@p3 AS varbinary(17)))

SELECT m.id, m.owner, m.fingerprint, m.created_at, DATEDIFF_BIG(millisecond, CAST('19700101' AS datetime2(3)), SYSUTCDATETIME()), r.result FROM (VALUES (CAST(@p1 AS binary(16)))) AS b (id) JOIN [Shop].[marks] AS m WITH (READCOMMITTEDLOCK, FORCESEEK) ON m.id = b.id LEFT JOIN [Shop].[marks_results] AS r WITH (READCOMMITTEDLOCK, FORCESEEK) ON r.id = b.id

SET NOCOUNT OFF; SET XACT_ABORT OFF; IF XACT_STATE() <> 1 THROW 50916, N'onceward: there is no transaction that can be committed', 1; INSERT INTO [Shop].[marks] (id, owner, fingerprint) VALUES (CAST(@p2 AS binary(16)), @p1, CAST(@p3 AS varbinary(17))), (CAST(@p4 AS binary(16)), @p1, CAST(@p5 AS varbinary(17)))

SELECT m.id, m.owner, m.fingerprint, m.created_at, DATEDIFF_BIG(millisecond, CAST('19700101' AS datetime2(3)), SYSUTCDATETIME()), r.result FROM (VALUES (CAST(@p1 AS binary(16))), (CAST(@p2 AS binary(16)))) AS b (id) JOIN [Shop].[marks] AS m WITH (READCOMMITTEDLOCK, FORCESEEK) ON m.id = b.id LEFT JOIN [Shop].[marks_results] AS r WITH (READCOMMITTEDLOCK, FORCESEEK) ON r.id = b.id

SELECT m.id, m.owner, m.fingerprint, m.created_at, DATEDIFF_BIG(millisecond, CAST('19700101' AS datetime2(3)), SYSUTCDATETIME()), r.result FROM (VALUES (CAST(@p1 AS binary(16)))) AS b (id) JOIN [Shop].[marks] AS m WITH (READCOMMITTEDLOCK, READPAST) ON m.id = b.id LEFT JOIN [Shop].[marks_results] AS r WITH (READCOMMITTEDLOCK, READPAST) ON r.id = b.id

SELECT window_ms FROM [Shop].[marks_meta]

INSERT INTO [Shop].[marks_meta] (one, window_ms) SELECT 1, @p1 WHERE NOT EXISTS (SELECT 1 FROM [Shop].[marks_meta] WHERE one = 1); UPDATE [Shop].[marks_meta] SET window_ms = @p1 WHERE one = 1

SELECT TOP (@p2) m.id FROM [Shop].[marks] AS m WITH (UPDLOCK, READPAST, ROWLOCK) CROSS JOIN (SELECT MAX(created_at) AS created_at FROM [Shop].[marks] WITH (READCOMMITTEDLOCK, READPAST)) AS newest WHERE m.created_at < newest.created_at - @p1 AND m.created_at < DATEDIFF_BIG(millisecond, CAST('19700101' AS datetime2(3)), SYSUTCDATETIME()) - @p1 ORDER BY m.created_at

SET NOCOUNT OFF; SET XACT_ABORT OFF; IF XACT_STATE() <> 1 THROW 50916, N'onceward: there is no transaction that can be committed', 1; INSERT INTO [Shop].[marks_results] (id, result) SELECT id, @p2 FROM [Shop].[marks] WHERE id = CAST(@p1 AS binary(16))

DELETE FROM [Shop].[marks_results] WHERE id IN (CAST(0x00000000000000000000000000000000 AS binary(16)), CAST(0x00000000000000000000000000000000 AS binary(16)))

DELETE FROM [Shop].[marks] WHERE id IN (CAST(0x00000000000000000000000000000000 AS binary(16)), CAST(0x00000000000000000000000000000000 AS binary(16)))
