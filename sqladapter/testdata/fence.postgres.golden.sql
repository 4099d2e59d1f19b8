-- One row per consumer group, topic and partition: the offset that comes next, moved in the
-- transaction of the effects. previous_offset is what it was before the last move, -1 for
-- nothing: RETURNING tells it to who has moved it. The topic's UUID keeps a topic that was
-- deleted and created again apart. Half of each page is left free, so that a new version of a
-- row finds room beside the old one and no index has to be touched.
CREATE TABLE IF NOT EXISTS "Shop"."fence" (
    consumer_group  text    COLLATE "C" NOT NULL,
    topic           text    COLLATE "C" NOT NULL,
    topic_id        text    COLLATE "C" NOT NULL,
    part            integer NOT NULL,
    previous_offset bigint  NOT NULL,
    next_offset     bigint  NOT NULL,
    PRIMARY KEY (consumer_group, topic, topic_id, part)
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS "Shop"."onceward_migrations" (component text COLLATE "C" NOT NULL, table_name text COLLATE "C" NOT NULL, version integer NOT NULL, PRIMARY KEY (component, table_name));

INSERT INTO "Shop"."onceward_migrations" (component, table_name, version) VALUES ('fence', 'fence', 1) ON CONFLICT (component, table_name) DO UPDATE SET version = excluded.version;


INSERT INTO "Shop"."fence" AS f (consumer_group, topic, topic_id, part, previous_offset, next_offset) SELECT $1::text, s.topic, s.topic_id, s.part, -1, s.next_offset FROM unnest($2::text::text[], $3::text::text[], $4::text::integer[], $5::text::bigint[]) AS s(topic, topic_id, part, next_offset) ON CONFLICT (consumer_group, topic, topic_id, part) DO UPDATE SET previous_offset = f.next_offset, next_offset = excluded.next_offset WHERE f.next_offset < excluded.next_offset RETURNING topic, topic_id, part, previous_offset

SELECT topic, topic_id, part, next_offset FROM "Shop"."fence" WHERE consumer_group = $1::text AND topic = $2::text AND topic_id = $3::text AND part = $4::integer

DELETE FROM "Shop"."fence" WHERE consumer_group = $1::text AND topic = $2::text AND topic_id = $3::text AND part = $4::integer
