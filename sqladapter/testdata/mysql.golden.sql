-- One row per mark: an operation whose effect was committed together with this row.
-- id is the first 128 bits of SHA-256 over (namespace, scope, key), in binary: a collation
-- would make different keys equal. owner is 63 random bits of the statement that wrote the
-- row, created_at the clock in milliseconds since 1970, and fingerprint a digest of the
-- payload, or null. The index serves retention alone.
CREATE TABLE IF NOT EXISTS `Shop`.`marks` (
    id          BINARY(16)      NOT NULL PRIMARY KEY,
    owner       BIGINT UNSIGNED NOT NULL,
    created_at  BIGINT          NOT NULL DEFAULT (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000),
    fingerprint VARBINARY(17)   NULL,
    KEY `marks_expiry` (created_at)
) ENGINE=InnoDB;

-- What effects have returned, of those marks that have something: apart, so that the table
-- every message goes through stays small.
CREATE TABLE IF NOT EXISTS `Shop`.`marks_results` (
    id     BINARY(16) NOT NULL PRIMARY KEY,
    result LONGBLOB   NOT NULL
) ENGINE=InnoDB;

-- One row: how long marks are kept, the longest that any user of the table has asked for.
CREATE TABLE IF NOT EXISTS `Shop`.`marks_meta` (
    one       TINYINT NOT NULL PRIMARY KEY,
    window_ms BIGINT  NOT NULL
) ENGINE=InnoDB;

INSERT INTO `Shop`.`marks_meta` (one, window_ms) VALUES (1, 9223372036854) ON DUPLICATE KEY UPDATE window_ms = GREATEST(window_ms, 9223372036854);

-- Where retention stands in its pass over the table: the last id that it has seen, and when
-- the pass began. newest_ms is when the newest mark was made of those that it has seen.
ALTER TABLE `Shop`.`marks_meta`
    ADD COLUMN walk_id       BINARY(16) NOT NULL DEFAULT '',
    ADD COLUMN walk_begun_ms BIGINT     NOT NULL DEFAULT 0,
    ADD COLUMN newest_ms     BIGINT     NOT NULL DEFAULT 0;

-- Retention reads the table in the order of its key, and needs no index by age.
ALTER TABLE `Shop`.`marks` DROP INDEX `marks_expiry`, ALGORITHM=INPLACE, LOCK=NONE;

-- What the ids of marks are: the digest, or whole seconds of the key's own time before 96 bits of
-- the digest, for keys of one kind, such as uuidv7. A table keeps the form that it was made for,
-- and marks from before this version are digests.
ALTER TABLE `Shop`.`marks_meta` ADD COLUMN id_form VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NULL;

UPDATE `Shop`.`marks_meta` SET id_form =
    CASE WHEN EXISTS (SELECT 1 FROM `Shop`.`marks`) THEN 'digest' ELSE 'digest' END
    WHERE id_form IS NULL;

-- How many marks retention has read in its pass. Ids that carry their time do not tell how much of
-- the table that is.
ALTER TABLE `Shop`.`marks_meta` ADD COLUMN walk_rows BIGINT NOT NULL DEFAULT 0;

CREATE TABLE IF NOT EXISTS `Shop`.`onceward_migrations` (component VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, table_name VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, version INT NOT NULL, PRIMARY KEY (component, table_name)) ENGINE=InnoDB;

INSERT INTO `Shop`.`onceward_migrations` (component, table_name, version) VALUES ('marks', 'marks', 3) ON DUPLICATE KEY UPDATE version = 3;


INSERT INTO `Shop`.`marks_meta` (one, window_ms) VALUES (1, 9223372036854) ON DUPLICATE KEY UPDATE window_ms = GREATEST(window_ms, 9223372036854)

INSERT INTO `Shop`.`marks` (id, owner, fingerprint) VALUES (x'00000000000000000000000000000000', 0, NULL) ON DUPLICATE KEY UPDATE id = id

SELECT m.id, m.owner, m.fingerprint, m.created_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000, r.result FROM `Shop`.`marks` AS m FORCE INDEX (PRIMARY) LEFT JOIN `Shop`.`marks_results` AS r FORCE INDEX (PRIMARY) ON r.id = m.id WHERE m.id IN (x'00000000000000000000000000000000') LOCK IN SHARE MODE

INSERT INTO `Shop`.`marks` (id, owner, fingerprint) VALUES (x'00000000000000000000000000000000', 0, NULL), (x'00000000000000000000000000000000', 0, NULL) ON DUPLICATE KEY UPDATE id = id

SELECT m.id, m.owner, m.fingerprint, m.created_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000, r.result FROM `Shop`.`marks` AS m FORCE INDEX (PRIMARY) LEFT JOIN `Shop`.`marks_results` AS r FORCE INDEX (PRIMARY) ON r.id = m.id WHERE m.id IN (x'00000000000000000000000000000000', x'00000000000000000000000000000000') LOCK IN SHARE MODE

SELECT m.id, m.owner, m.fingerprint, m.created_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000, r.result FROM `Shop`.`marks` AS m FORCE INDEX (PRIMARY) LEFT JOIN `Shop`.`marks_results` AS r FORCE INDEX (PRIMARY) ON r.id = m.id WHERE m.id IN (x'00000000000000000000000000000000')

SELECT window_ms FROM `Shop`.`marks_meta`

INSERT INTO `Shop`.`marks_meta` (one, window_ms) VALUES (1, ?) ON DUPLICATE KEY UPDATE window_ms = VALUES(window_ms)



INSERT INTO `Shop`.`marks_results` (id, result) SELECT m.id, x'726573756c74' FROM `Shop`.`marks` AS m WHERE m.id = x'00000000000000000000000000000000' ON DUPLICATE KEY UPDATE `Shop`.`marks_results`.id = `Shop`.`marks_results`.id

INSERT INTO `Shop`.`marks` (id, owner, fingerprint) VALUES (x'00000000000000000000000000000000', 0, NULL), (x'00000000000000000000000000000000', 0, x'0100000000000000000000000000000000') ON DUPLICATE KEY UPDATE id = id

SELECT window_ms, walk_begun_ms, newest_ms, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000, walk_id FROM `Shop`.`marks_meta` FOR UPDATE SKIP LOCKED

DELETE m FROM `Shop`.`marks_results` AS m FORCE INDEX (PRIMARY) WHERE m.id IN (x'00000000000000000000000000000000', x'00000000000000000000000000000000')

DELETE m FROM `Shop`.`marks` AS m FORCE INDEX (PRIMARY) WHERE m.id IN (x'00000000000000000000000000000000', x'00000000000000000000000000000000')

SELECT m.id, m.owner, m.fingerprint, m.created_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 FROM `Shop`.`marks` AS m FORCE INDEX (PRIMARY) WHERE m.id IN (x'00000000000000000000000000000000', x'00000000000000000000000000000000') LOCK IN SHARE MODE

SELECT r.id, r.result FROM `Shop`.`marks_results` AS r FORCE INDEX (PRIMARY) WHERE r.id IN (x'00000000000000000000000000000000', x'00000000000000000000000000000000') LOCK IN SHARE MODE

SELECT r.id, r.result FROM `Shop`.`marks_results` AS r FORCE INDEX (PRIMARY) WHERE r.id IN (x'00000000000000000000000000000000', x'00000000000000000000000000000000')
