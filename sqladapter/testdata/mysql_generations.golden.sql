SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'Shop' AND table_name = 'marks' AND table_type <> 'VIEW'

-- Marks in generations: those that are made now, and those of the one before. A row is as in a
-- table of marks that is kept by deletes, without the index by age: a table is dropped as a whole.
-- The row with the id zero is the generation's own, made when it was opened.
CREATE TABLE IF NOT EXISTS `Shop`.`marks_open` (
    id          BINARY(16)      NOT NULL PRIMARY KEY,
    owner       BIGINT UNSIGNED NOT NULL,
    created_at  BIGINT          NOT NULL DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000),
    fingerprint VARBINARY(17)   NULL
) ENGINE=InnoDB STATS_PERSISTENT=0;

CREATE TABLE IF NOT EXISTS `Shop`.`marks_sealed` LIKE `Shop`.`marks_open`;

INSERT INTO `Shop`.`marks_open` (id, owner) VALUES (x'00000000000000000000000000000000', 0) ON DUPLICATE KEY UPDATE id = id;

-- What effects have returned, of those marks that have something.
CREATE TABLE IF NOT EXISTS `Shop`.`marks_open_results` (
    id     BINARY(16) NOT NULL PRIMARY KEY,
    result LONGBLOB   NOT NULL
) ENGINE=InnoDB STATS_PERSISTENT=0;

CREATE TABLE IF NOT EXISTS `Shop`.`marks_sealed_results` LIKE `Shop`.`marks_open_results`;

-- Both, for people.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW `Shop`.`marks` AS
    SELECT id, owner, created_at, fingerprint FROM `Shop`.`marks_open` WHERE id <> x'00000000000000000000000000000000'
    UNION ALL SELECT id, owner, created_at, fingerprint FROM `Shop`.`marks_sealed` WHERE id <> x'00000000000000000000000000000000';

CREATE OR REPLACE SQL SECURITY INVOKER VIEW `Shop`.`marks_results` AS
    SELECT id, result FROM `Shop`.`marks_open_results` UNION ALL SELECT id, result FROM `Shop`.`marks_sealed_results`;

-- One row: how long marks are kept, the longest that any user of the table has asked for.
CREATE TABLE IF NOT EXISTS `Shop`.`marks_meta` (
    one       TINYINT NOT NULL PRIMARY KEY,
    window_ms BIGINT  NOT NULL
) ENGINE=InnoDB;

INSERT INTO `Shop`.`marks_meta` (one, window_ms) VALUES (1, 3600000) ON DUPLICATE KEY UPDATE window_ms = GREATEST(window_ms, 3600000);

CREATE TABLE IF NOT EXISTS `Shop`.`onceward_migrations` (component VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, table_name VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, version INT NOT NULL, PRIMARY KEY (component, table_name)) ENGINE=InnoDB;

INSERT INTO `Shop`.`onceward_migrations` (component, table_name, version) VALUES ('generations', 'marks', 1) ON DUPLICATE KEY UPDATE version = 1;


INSERT INTO `Shop`.`marks_open` (id, owner, fingerprint) SELECT UNHEX(b.id), 1, UNHEX(b.fingerprint) FROM JSON_TABLE('[["00000000000000000000000000000000"]]', '$[*]' COLUMNS (id CHAR(32) PATH '$[0]', fingerprint VARCHAR(34) PATH '$[1]')) AS b LEFT JOIN `Shop`.`marks_sealed` AS p FORCE INDEX (PRIMARY) ON p.id = UNHEX(b.id) WHERE p.id IS NULL /*!80000 FOR SHARE OF p */ /*M! LOCK IN SHARE MODE */ ON DUPLICATE KEY UPDATE `Shop`.`marks_open`.id = `Shop`.`marks_open`.id

INSERT INTO `Shop`.`marks_open` (id, owner, fingerprint) SELECT UNHEX(b.id), 1, UNHEX(b.fingerprint) FROM JSON_TABLE('[["00000000000000000000000000000000"], ["00000000000000000000000000000000"]]', '$[*]' COLUMNS (id CHAR(32) PATH '$[0]', fingerprint VARCHAR(34) PATH '$[1]')) AS b LEFT JOIN `Shop`.`marks_sealed` AS p FORCE INDEX (PRIMARY) ON p.id = UNHEX(b.id) WHERE p.id IS NULL /*!80000 FOR SHARE OF p */ /*M! LOCK IN SHARE MODE */ ON DUPLICATE KEY UPDATE `Shop`.`marks_open`.id = `Shop`.`marks_open`.id

SELECT m.id, m.owner, m.fingerprint, m.created_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000, r.result FROM `Shop`.`marks_sealed` AS m FORCE INDEX (PRIMARY) LEFT JOIN `Shop`.`marks_sealed_results` AS r FORCE INDEX (PRIMARY) ON r.id = m.id WHERE m.id IN (x'00000000000000000000000000000000') LOCK IN SHARE MODE

SELECT m.id, m.owner, m.fingerprint, m.created_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000, r.result FROM `Shop`.`marks_open` AS m FORCE INDEX (PRIMARY) LEFT JOIN `Shop`.`marks_open_results` AS r FORCE INDEX (PRIMARY) ON r.id = m.id WHERE m.id IN (x'00000000000000000000000000000000') LOCK IN SHARE MODE

SELECT m.id, m.owner, m.fingerprint, m.created_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 FROM `Shop`.`marks_open` AS m FORCE INDEX (PRIMARY) WHERE m.id IN (x'00000000000000000000000000000000') LOCK IN SHARE MODE

SELECT r.id, r.result FROM `Shop`.`marks_open_results` AS r FORCE INDEX (PRIMARY) WHERE r.id IN (x'00000000000000000000000000000000') LOCK IN SHARE MODE

INSERT INTO `Shop`.`marks_open_results` (id, result) SELECT m.id, x'' FROM `Shop`.`marks_open` AS m WHERE m.id = x'00000000000000000000000000000000' ON DUPLICATE KEY UPDATE `Shop`.`marks_open_results`.id = `Shop`.`marks_open_results`.id

(SELECT m.id, m.owner, m.fingerprint, m.created_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000, r.result FROM `Shop`.`marks_open` AS m FORCE INDEX (PRIMARY) LEFT JOIN `Shop`.`marks_open_results` AS r FORCE INDEX (PRIMARY) ON r.id = m.id WHERE m.id IN (x'00000000000000000000000000000000')) UNION ALL (SELECT m.id, m.owner, m.fingerprint, m.created_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000, r.result FROM `Shop`.`marks_sealed` AS m FORCE INDEX (PRIMARY) LEFT JOIN `Shop`.`marks_sealed_results` AS r FORCE INDEX (PRIMARY) ON r.id = m.id WHERE m.id IN (x'00000000000000000000000000000000'))

SELECT COALESCE((SELECT created_at FROM `Shop`.`marks_open` WHERE id = x'00000000000000000000000000000000'), 0), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000, (SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'Shop' AND table_name IN ('marks_gone', 'marks_gone_results')) + 0 * (SELECT COUNT(*) FROM `Shop`.`marks_sealed` WHERE id = x'00000000000000000000000000000000')

SELECT COALESCE(MAX(created_at), 0) FROM (SELECT created_at FROM `Shop`.`marks_open` FORCE INDEX (PRIMARY) ORDER BY id LIMIT 20000) AS s

CONCAT('onceward rotate ', LEFT(SHA2(LOWER(CONCAT('Shop', '.marks')), 256), 32))

DROP TABLE IF EXISTS `Shop`.`marks_next`, `Shop`.`marks_next_results`

CREATE TABLE `Shop`.`marks_next` LIKE `Shop`.`marks_open`

CREATE TABLE `Shop`.`marks_next_results` LIKE `Shop`.`marks_open_results`

RENAME TABLE `Shop`.`marks_sealed` TO `Shop`.`marks_gone`, `Shop`.`marks_sealed_results` TO `Shop`.`marks_gone_results`, `Shop`.`marks_open` TO `Shop`.`marks_sealed`, `Shop`.`marks_open_results` TO `Shop`.`marks_sealed_results`, `Shop`.`marks_next` TO `Shop`.`marks_open`, `Shop`.`marks_next_results` TO `Shop`.`marks_open_results`

INSERT INTO `Shop`.`marks_open` (id, owner) VALUES (x'00000000000000000000000000000000', 0) ON DUPLICATE KEY UPDATE id = id

DROP TABLE IF EXISTS `Shop`.`marks_gone`, `Shop`.`marks_gone_results`
