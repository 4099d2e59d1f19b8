-- One row per consumer group, topic and partition: the offset that comes next, moved in the
-- transaction of the effects. previous_offset is what it was before the last move, -1 for
-- nothing. The topic's UUID keeps a topic that was deleted and created again apart.
CREATE TABLE IF NOT EXISTS "Shop"."fence" (
    consumer_group  TEXT    NOT NULL,
    topic           TEXT    NOT NULL,
    topic_id        TEXT    NOT NULL,
    part            INTEGER NOT NULL,
    previous_offset INTEGER NOT NULL,
    next_offset     INTEGER NOT NULL,
    PRIMARY KEY (consumer_group, topic, topic_id, part)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS "Shop"."onceward_migrations" (component TEXT NOT NULL, table_name TEXT NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (component, table_name)) WITHOUT ROWID;

INSERT INTO "Shop"."onceward_migrations" (component, table_name, version) VALUES ('fence', 'fence', 1) ON CONFLICT (component, table_name) DO UPDATE SET version = excluded.version;


INSERT INTO "Shop"."fence" AS f (consumer_group, topic, topic_id, part, previous_offset, next_offset) VALUES (?, ?, ?, ?, -1, ?) ON CONFLICT (consumer_group, topic, topic_id, part) DO UPDATE SET previous_offset = f.next_offset, next_offset = excluded.next_offset WHERE f.next_offset < excluded.next_offset RETURNING topic, topic_id, part, previous_offset

SELECT topic, topic_id, part, next_offset FROM "Shop"."fence" WHERE consumer_group = ? AND topic = ? AND topic_id = ? AND part = ?

DELETE FROM "Shop"."fence" WHERE consumer_group = ? AND topic = ? AND topic_id = ? AND part = ?
