-- One row per message that is not known to be published. shard is a hash of the key, for
-- relays to divide the work by; id orders the messages of a shard. headers is a list in a
-- binary form. dedup_id is what the consumer deduplicates by. attempts counts how often the
-- message has failed by itself; until retry_at it and the later ones of its key wait.
-- Columns are binary, because collations take different texts for equal.
CREATE TABLE IF NOT EXISTS `Shop`.`box` (
    id         BIGINT         NOT NULL AUTO_INCREMENT,
    shard      SMALLINT       NOT NULL,
    attempts   INT            NOT NULL DEFAULT 0,
    created_at TIMESTAMP(6)   NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    retry_at   TIMESTAMP(6)   NULL DEFAULT NULL,
    topic      VARBINARY(249) NOT NULL,
    dedup_id   VARBINARY(255) NOT NULL,
    `key`      VARBINARY(4096) NOT NULL,
    headers    MEDIUMBLOB     NOT NULL,
    payload    MEDIUMBLOB     NULL,
    PRIMARY KEY (shard, id),
    KEY (id)
) ENGINE=InnoDB;

-- Messages the broker has refused for good, with the reason, until somebody requeues or
-- deletes them.
CREATE TABLE IF NOT EXISTS `Shop`.`box_parked` (
    id         BIGINT         NOT NULL PRIMARY KEY,
    shard      SMALLINT       NOT NULL,
    attempts   INT            NOT NULL,
    created_at TIMESTAMP(6)   NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    parked_at  TIMESTAMP(6)   NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    reason     MEDIUMBLOB     NOT NULL,
    topic      VARBINARY(249) NOT NULL,
    dedup_id   VARBINARY(255) NOT NULL,
    `key`      VARBINARY(4096) NOT NULL,
    headers    MEDIUMBLOB     NOT NULL,
    payload    MEDIUMBLOB     NULL
) ENGINE=InnoDB;

-- A relay holds the lock of its shard's row while it publishes.
CREATE TABLE IF NOT EXISTS `Shop`.`box_shards` (
    shard SMALLINT NOT NULL PRIMARY KEY
) ENGINE=InnoDB;

INSERT INTO `Shop`.`box_shards` (shard)
VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15)
ON DUPLICATE KEY UPDATE shard = shard;

-- Messages that are not to be published before a time, in microseconds since 1970. When it has
-- come, a relay moves them to the messages, where they get an id then, and with it their place
-- among those of their key.
CREATE TABLE IF NOT EXISTS `Shop`.`box_scheduled` (
    id         BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    not_before BIGINT         NOT NULL,
    shard      SMALLINT       NOT NULL,
    created_at TIMESTAMP(6)   NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    topic      VARBINARY(249) NOT NULL,
    dedup_id   VARBINARY(255) NOT NULL,
    `key`      VARBINARY(4096) NOT NULL,
    headers    MEDIUMBLOB     NOT NULL,
    payload    MEDIUMBLOB     NULL,
    KEY (not_before, id)
) ENGINE=InnoDB;

-- Messages that are published, for as long as Config.History says, in the order of publishing.
CREATE TABLE IF NOT EXISTS `Shop`.`box_published` (
    id           BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    shard        SMALLINT       NOT NULL,
    attempts     INT            NOT NULL,
    created_at   TIMESTAMP(6)   NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    published_at TIMESTAMP(6)   NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    topic        VARBINARY(249) NOT NULL,
    dedup_id     VARBINARY(255) NOT NULL,
    `key`        VARBINARY(4096) NOT NULL,
    headers      MEDIUMBLOB     NOT NULL,
    payload      MEDIUMBLOB     NULL
) ENGINE=InnoDB;

-- The relay that moves what is due holds the lock of this row. No message has this shard.
INSERT INTO `Shop`.`box_shards` (shard) VALUES (16) ON DUPLICATE KEY UPDATE shard = shard;

CREATE TABLE IF NOT EXISTS `Shop`.`onceward_migrations` (component VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, table_name VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, version INT NOT NULL, PRIMARY KEY (component, table_name)) ENGINE=InnoDB;

INSERT INTO `Shop`.`onceward_migrations` (component, table_name, version) VALUES ('outbox', 'box', 2) ON DUPLICATE KEY UPDATE version = 2;


INSERT INTO `Shop`.`box` (shard, topic, dedup_id, `key`, headers, payload) VALUES (?, ?, ?, ?, ?, ?), (?, ?, ?, ?, ?, ?)

INSERT INTO `Shop`.`box_scheduled` (shard, topic, dedup_id, `key`, headers, payload, not_before) VALUES (?, ?, ?, ?, ?, ?, ?)

SELECT s.shard FROM `Shop`.`box_shards` AS s WHERE EXISTS (SELECT 1 FROM `Shop`.`box` AS o WHERE o.shard = s.shard)

(SELECT {{shard}} FROM `Shop`.`box` WHERE shard = {{shard}} AND id > ? LIMIT 1)

SELECT coalesce((SELECT id FROM `Shop`.`box` WHERE shard = ? ORDER BY id DESC LIMIT 1), 0)



SELECT 1 FROM `Shop`.`box_shards` WHERE shard = ? FOR UPDATE SKIP LOCKED



SELECT id, topic, dedup_id, `key`, headers, payload, attempts, CASE WHEN UNIX_TIMESTAMP(retry_at) * 1000000 > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND UNIX_TIMESTAMP(retry_at) * 1000000 <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + {{longest}} THEN 1 ELSE 0 END, CASE WHEN payload IS NULL THEN 1 ELSE 0 END FROM `Shop`.`box` WHERE shard = ? AND id > ?{{topics}} ORDER BY id LIMIT ?

SELECT id, topic, dedup_id, `key`, headers, payload, attempts, 0, CASE WHEN payload IS NULL THEN 1 ELSE 0 END FROM `Shop`.`box` WHERE shard = ? AND id > ?{{topics}} AND (retry_at IS NULL OR UNIX_TIMESTAMP(retry_at) * 1000000 <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) OR UNIX_TIMESTAMP(retry_at) * 1000000 > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + {{longest}}) AND (`key` = '' OR coalesce(SHA2(CONCAT(topic, ' ', `key`), 256), '') NOT IN ( SELECT coalesce(SHA2(CONCAT(topic, ' ', `key`), 256), '') FROM `Shop`.`box` WHERE shard = {{shard}} AND UNIX_TIMESTAMP(retry_at) * 1000000 > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND UNIX_TIMESTAMP(retry_at) * 1000000 <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + {{longest}} ) AND (attempts > 0 OR coalesce(SHA2(CONCAT(topic, ' ', `key`), 256), '') NOT IN ( SELECT coalesce(SHA2(CONCAT(topic, ' ', `key`), 256), '') FROM `Shop`.`box` WHERE shard = {{shard}} AND attempts > 0 ))) ORDER BY id LIMIT ?



SELECT 'session', CAST(trx_mysql_thread_id AS CHAR), TIMESTAMPDIFF(MICROSECOND, trx_started, NOW(6)), coalesce(p.user, ''), '', coalesce(p.command, trx_state), left(coalesce(trx_query, ''), 500) FROM information_schema.innodb_trx LEFT JOIN information_schema.processlist AS p ON p.id = trx_mysql_thread_id WHERE trx_mysql_thread_id <> CONNECTION_ID() ORDER BY trx_started LIMIT 1

SELECT 'session', CAST(processlist_id AS CHAR), timer_wait DIV 1000000, coalesce(processlist_user, ''), '', coalesce(processlist_command, ''), left(coalesce(processlist_info, ''), 500) FROM performance_schema.events_transactions_current JOIN performance_schema.threads USING (thread_id) WHERE state = 'ACTIVE' AND processlist_id <> CONNECTION_ID() ORDER BY timer_wait DESC LIMIT 1

DELETE o FROM JSON_TABLE('[{{ids}}]', '$[*]' COLUMNS (id BIGINT PATH '$')) AS x STRAIGHT_JOIN `Shop`.`box` AS o FORCE INDEX (PRIMARY) ON o.shard = ? AND o.id = x.id

UPDATE JSON_TABLE('[{{ids}}]', '$[*]' COLUMNS (id BIGINT PATH '$')) AS x STRAIGHT_JOIN `Shop`.`box` AS o FORCE INDEX (PRIMARY) ON o.id = x.id SET o.attempts = o.attempts + ?, o.retry_at = FROM_UNIXTIME((TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + ?) * 0.000001) WHERE o.shard = ?

INSERT INTO `Shop`.`box_parked` (id, shard, attempts, created_at, reason, topic, dedup_id, `key`, headers, payload) SELECT id, shard, attempts + 1, created_at, ?, topic, dedup_id, `key`, headers, payload FROM `Shop`.`box` WHERE shard = ? AND id = ?

SELECT (SELECT count(*) FROM (SELECT 1 FROM `Shop`.`box` LIMIT ?) AS p), (SELECT count(*) FROM (SELECT 1 FROM `Shop`.`box_parked` LIMIT ?) AS q), (SELECT count(*) FROM (SELECT 1 FROM `Shop`.`box_scheduled` LIMIT ?) AS r), CAST(greatest(coalesce((SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - min((SELECT UNIX_TIMESTAMP(o.created_at) FROM `Shop`.`box` AS o WHERE o.shard = s.shard ORDER BY o.id LIMIT 1)) * 1000000 FROM `Shop`.`box_shards` AS s), 0), coalesce((SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - greatest(not_before, UNIX_TIMESTAMP(created_at) * 1000000) FROM `Shop`.`box_scheduled` ORDER BY not_before, id LIMIT 1), 0)) AS SIGNED)

SELECT id, topic, dedup_id, `key`, headers, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, attempts, reason, CAST(UNIX_TIMESTAMP(created_at) * 1000000 AS SIGNED), CAST(UNIX_TIMESTAMP(parked_at) * 1000000 AS SIGNED) FROM `Shop`.`box_parked` WHERE id > ? ORDER BY id LIMIT ?

INSERT INTO `Shop`.`box` (shard, topic, dedup_id, `key`, headers, payload) SELECT shard, topic, dedup_id, `key`, headers, payload FROM `Shop`.`box_parked` WHERE id = ? FOR UPDATE

DELETE FROM `Shop`.`box_parked` WHERE id = ?

SELECT not_before - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM `Shop`.`box_scheduled` ORDER BY not_before, id LIMIT 1

SELECT 1 FROM `Shop`.`box_shards` WHERE shard = 16 FOR UPDATE SKIP LOCKED

SELECT id, not_before FROM `Shop`.`box_scheduled` WHERE not_before <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AND not_before >= ? ORDER BY not_before, id LIMIT ?

INSERT INTO `Shop`.`box` (shard, created_at, topic, dedup_id, `key`, headers, payload) SELECT o.shard, greatest(o.created_at, FROM_UNIXTIME(greatest(o.not_before, 0) * 0.000001)), o.topic, o.dedup_id, o.`key`, o.headers, o.payload FROM JSON_TABLE('[{{ids}}]', '$[*]' COLUMNS (id BIGINT PATH '$')) AS x STRAIGHT_JOIN `Shop`.`box_scheduled` AS o FORCE INDEX (PRIMARY) ON o.id = x.id ORDER BY o.not_before, o.id

DELETE o FROM JSON_TABLE('[{{ids}}]', '$[*]' COLUMNS (id BIGINT PATH '$')) AS x STRAIGHT_JOIN `Shop`.`box_scheduled` AS o FORCE INDEX (PRIMARY) ON o.id = x.id

INSERT INTO `Shop`.`box_published` (shard, attempts, created_at, topic, dedup_id, `key`, headers, payload) SELECT o.shard, o.attempts, o.created_at, o.topic, o.dedup_id, o.`key`, o.headers, o.payload FROM JSON_TABLE('[{{ids}}]', '$[*]' COLUMNS (id BIGINT PATH '$')) AS x STRAIGHT_JOIN `Shop`.`box` AS o FORCE INDEX (PRIMARY) ON o.shard = ? AND o.id = x.id ORDER BY o.id

SELECT id, CASE WHEN ABS(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - UNIX_TIMESTAMP(published_at) * 1000000) > ? THEN 1 ELSE 0 END FROM `Shop`.`box_published` WHERE id > ? ORDER BY id LIMIT ?

DELETE o FROM JSON_TABLE('[{{ids}}]', '$[*]' COLUMNS (id BIGINT PATH '$')) AS x STRAIGHT_JOIN `Shop`.`box_published` AS o FORCE INDEX (PRIMARY) ON o.id = x.id

SELECT id, topic, dedup_id, `key`, headers, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, attempts, CAST(UNIX_TIMESTAMP(created_at) * 1000000 AS SIGNED), CAST(UNIX_TIMESTAMP(published_at) * 1000000 AS SIGNED) FROM `Shop`.`box_published` WHERE id > ? ORDER BY id LIMIT ?

SELECT id, shard, attempts, created_at, retry_at, topic, dedup_id, `key`, headers, payload FROM `Shop`.`box` WHERE 1 = 0

SELECT id, shard, attempts, created_at, parked_at, reason, topic, dedup_id, `key`, headers, payload FROM `Shop`.`box_parked` WHERE 1 = 0

SELECT id, not_before, shard, created_at, topic, dedup_id, `key`, headers, payload FROM `Shop`.`box_scheduled` WHERE 1 = 0

SELECT id, shard, attempts, created_at, published_at, topic, dedup_id, `key`, headers, payload FROM `Shop`.`box_published` WHERE 1 = 0
