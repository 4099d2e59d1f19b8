-- One row per consumer group, topic and partition: the offset that comes next, moved in the
-- transaction of the effects. previous_offset is what it was before the last move, -1 for
-- nothing. The topic's UUID keeps a topic that was deleted and created again apart. Names are
-- binary, because a collation would take different ones for the same.
CREATE TABLE IF NOT EXISTS `Shop`.`fence` (
    consumer_group  VARBINARY(255) NOT NULL,
    topic           VARBINARY(249) NOT NULL,
    topic_id        VARBINARY(64)  NOT NULL,
    part            INT            NOT NULL,
    previous_offset BIGINT         NOT NULL,
    next_offset     BIGINT         NOT NULL,
    PRIMARY KEY (consumer_group, topic, topic_id, part)
) ENGINE=InnoDB;

CREATE TABLE IF NOT EXISTS `Shop`.`onceward_migrations` (component VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, table_name VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, version INT NOT NULL, PRIMARY KEY (component, table_name)) ENGINE=InnoDB;

INSERT INTO `Shop`.`onceward_migrations` (component, table_name, version) VALUES ('fence', 'fence', 1) ON DUPLICATE KEY UPDATE version = 1;


INSERT INTO `Shop`.`fence` (consumer_group, topic, topic_id, part, previous_offset, next_offset) VALUES (?, ?, ?, ?, -1, ?) ON DUPLICATE KEY UPDATE previous_offset = next_offset, next_offset = GREATEST(next_offset, ?)

SELECT topic, topic_id, part, previous_offset FROM `Shop`.`fence` WHERE consumer_group = ? AND topic = ? AND topic_id = ? AND part = ? FOR UPDATE

SELECT topic, topic_id, part, next_offset FROM `Shop`.`fence` WHERE consumer_group = ? AND topic = ? AND topic_id = ? AND part = ?

DELETE FROM `Shop`.`fence` WHERE consumer_group = ? AND topic = ? AND topic_id = ? AND part = ?
