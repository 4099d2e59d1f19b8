-- Messages that are not to be published before a time, in microseconds since 1970. When it has
-- come, a relay moves them to the messages, where they get an id then, and with it their place
-- among those of their key.
CREATE TABLE IF NOT EXISTS {{table:_scheduled}} (
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
CREATE TABLE IF NOT EXISTS {{table:_published}} (
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
INSERT INTO {{table:_shards}} (shard) VALUES (16) ON DUPLICATE KEY UPDATE shard = shard;
