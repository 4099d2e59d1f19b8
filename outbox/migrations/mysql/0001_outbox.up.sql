-- One row per message that is not known to be published. shard is a hash of the key, for
-- relays to divide the work by; id orders the messages of a shard. headers is a list in a
-- binary form. dedup_id is what the consumer deduplicates by. attempts counts how often the
-- message has failed by itself; until retry_at it and the later ones of its key wait.
-- Columns are binary, because collations take different texts for equal.
CREATE TABLE IF NOT EXISTS {{table}} (
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
CREATE TABLE IF NOT EXISTS {{table:_parked}} (
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
CREATE TABLE IF NOT EXISTS {{table:_shards}} (
    shard SMALLINT NOT NULL PRIMARY KEY
) ENGINE=InnoDB;

INSERT INTO {{table:_shards}} (shard)
VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15)
ON DUPLICATE KEY UPDATE shard = shard;
