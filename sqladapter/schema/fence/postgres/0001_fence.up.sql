-- One row per consumer group, topic and partition: the offset that comes next, moved in the
-- transaction of the effects. previous_offset is what it was before the last move, -1 for
-- nothing: RETURNING tells it to who has moved it. The topic's UUID keeps a topic that was
-- deleted and created again apart. Half of each page is left free, so that a new version of a
-- row finds room beside the old one and no index has to be touched.
CREATE TABLE IF NOT EXISTS {{table}} (
    consumer_group  text    COLLATE "C" NOT NULL,
    topic           text    COLLATE "C" NOT NULL,
    topic_id        text    COLLATE "C" NOT NULL,
    part            integer NOT NULL,
    previous_offset bigint  NOT NULL,
    next_offset     bigint  NOT NULL,
    PRIMARY KEY (consumer_group, topic, topic_id, part)
) WITH (fillfactor = 50);
