-- One row per message that is not known to be published. shard is a hash of the key, for
-- relays to divide the work by; id orders the messages of a shard. headers is a list in a
-- binary form. dedup_id is what the consumer deduplicates by. attempts counts how often the
-- message has failed by itself; until retry_at it and the later ones of its key wait.
CREATE TABLE IF NOT EXISTS {{table}} (
    id         bigint      GENERATED ALWAYS AS IDENTITY,
    shard      smallint    NOT NULL,
    attempts   integer     NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    retry_at   timestamptz,
    topic      text        COLLATE "C" NOT NULL,
    dedup_id   text        COLLATE "C" NOT NULL,
    key        bytea       NOT NULL,
    headers    bytea       NOT NULL,
    payload    bytea,
    PRIMARY KEY (shard, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Nearly always empty: the messages that have failed.
CREATE INDEX IF NOT EXISTS {{index:_held}} ON {{table}} (shard, id) WHERE retry_at IS NOT NULL;

-- Messages the broker has refused for good, with the reason, until somebody requeues or
-- deletes them.
CREATE TABLE IF NOT EXISTS {{table:_parked}} (
    id         bigint      NOT NULL PRIMARY KEY,
    shard      smallint    NOT NULL,
    attempts   integer     NOT NULL,
    created_at timestamptz NOT NULL,
    parked_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason     text        NOT NULL,
    topic      text        COLLATE "C" NOT NULL,
    dedup_id   text        COLLATE "C" NOT NULL,
    key        bytea       NOT NULL,
    headers    bytea       NOT NULL,
    payload    bytea
);
