-- One row per consumer group, topic and partition: the offset that comes next, moved in the
-- transaction of the effects. previous_offset is what it was before the last move, -1 for
-- nothing. The topic's UUID keeps a topic that was deleted and created again apart.
CREATE TABLE IF NOT EXISTS {{table}} (
    consumer_group  TEXT    NOT NULL,
    topic           TEXT    NOT NULL,
    topic_id        TEXT    NOT NULL,
    part            INTEGER NOT NULL,
    previous_offset INTEGER NOT NULL,
    next_offset     INTEGER NOT NULL,
    PRIMARY KEY (consumer_group, topic, topic_id, part)
) WITHOUT ROWID;
