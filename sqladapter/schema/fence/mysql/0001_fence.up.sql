-- One row per consumer group, topic and partition: the offset that comes next, moved in the
-- transaction of the effects. previous_offset is what it was before the last move, -1 for
-- nothing. The topic's UUID keeps a topic that was deleted and created again apart. Names are
-- binary, because a collation would take different ones for the same.
CREATE TABLE IF NOT EXISTS {{table}} (
    consumer_group  VARBINARY(255) NOT NULL,
    topic           VARBINARY(249) NOT NULL,
    topic_id        VARBINARY(64)  NOT NULL,
    part            INT            NOT NULL,
    previous_offset BIGINT         NOT NULL,
    next_offset     BIGINT         NOT NULL,
    PRIMARY KEY (consumer_group, topic, topic_id, part)
) ENGINE=InnoDB;
