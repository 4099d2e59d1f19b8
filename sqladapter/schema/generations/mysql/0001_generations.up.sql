-- Marks in generations: those that are made now, and those of the one before. A row is as in a
-- table of marks that is kept by deletes, without the index by age: a table is dropped as a whole.
-- The row with the id zero is the generation's own, made when it was opened.
CREATE TABLE IF NOT EXISTS {{open}} (
    id          BINARY(16)      NOT NULL PRIMARY KEY,
    owner       BIGINT UNSIGNED NOT NULL,
    created_at  BIGINT          NOT NULL DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000),
    fingerprint VARBINARY(17)   NULL
) ENGINE=InnoDB STATS_PERSISTENT=0;
CREATE TABLE IF NOT EXISTS {{sealed}} LIKE {{open}};
INSERT INTO {{open}} (id, owner) VALUES ({{birth}}, 0) ON DUPLICATE KEY UPDATE id = id;

-- What effects have returned, of those marks that have something.
CREATE TABLE IF NOT EXISTS {{open_results}} (
    id     BINARY(16) NOT NULL PRIMARY KEY,
    result LONGBLOB   NOT NULL
) ENGINE=InnoDB STATS_PERSISTENT=0;
CREATE TABLE IF NOT EXISTS {{sealed_results}} LIKE {{open_results}};

-- Both, for people.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW {{table}} AS
    SELECT id, owner, created_at, fingerprint FROM {{open}} WHERE id <> {{birth}}
    UNION ALL SELECT id, owner, created_at, fingerprint FROM {{sealed}} WHERE id <> {{birth}};
CREATE OR REPLACE SQL SECURITY INVOKER VIEW {{table:_results}} AS
    SELECT id, result FROM {{open_results}} UNION ALL SELECT id, result FROM {{sealed_results}};

-- One row: how long marks are kept, the longest that any user of the table has asked for.
CREATE TABLE IF NOT EXISTS {{table:_meta}} (
    one       TINYINT NOT NULL PRIMARY KEY,
    window_ms BIGINT  NOT NULL
) ENGINE=InnoDB;
{{raise_window}};
