-- Messages that are not to be published before a time. When it has come, a relay moves them to the
-- messages, where they get an id then, and with it their place among those of their key.
CREATE TABLE IF NOT EXISTS {{table:_scheduled}} (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    not_before timestamptz NOT NULL,
    shard      smallint    NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic      text        COLLATE "C" NOT NULL,
    dedup_id   text        COLLATE "C" NOT NULL,
    key        bytea       NOT NULL,
    headers    bytea       NOT NULL,
    payload    bytea
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE INDEX IF NOT EXISTS {{index:_due}} ON {{table:_scheduled}} (not_before, id);

-- Messages that are published, for as long as Config.History says, in the order of publishing.
CREATE TABLE IF NOT EXISTS {{table:_published}} (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    shard        smallint    NOT NULL,
    attempts     integer     NOT NULL,
    created_at   timestamptz NOT NULL,
    published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic        text        COLLATE "C" NOT NULL,
    dedup_id     text        COLLATE "C" NOT NULL,
    key          bytea       NOT NULL,
    headers      bytea       NOT NULL,
    payload      bytea
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- The shard of a key; of a message without a key that of its dedup_id. It is FNV-1a of 64 bits, of
-- which only the lower 36 matter here: ((h >> 32) xor h) modulo 16.
CREATE OR REPLACE FUNCTION {{table:_shard}}(key bytea) RETURNS smallint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $body$
DECLARE
    h bigint := 19396698917; -- the lower 36 bits of the offset basis
BEGIN
    FOR i IN 0 .. length(key) - 1 LOOP
        h := ((h # get_byte(key, i)) * 435) & 68719476735; -- of the prime 2^40 + 435
    END LOOP; --
    RETURN ((h >> 32) # h) & 15; --
END $body$;

-- Headers in the form of the column: the byte 1, their number, and of each the length of its name,
-- the name, the length of its value and one (zero for null), and the value. Numbers are varints,
-- seven bits a byte, the lower ones first. The argument is an object of texts.
CREATE OR REPLACE FUNCTION {{table:_headers}}(headers jsonb) RETURNS bytea
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $body$
DECLARE
    encoded bytea := '\x01'; --
    n bigint; --
    part bytea; --
BEGIN
    FOR n, part IN
        SELECT p.n, p.part FROM (
            SELECT 0 AS no, 0 AS k, count(*) AS n, ''::bytea AS part FROM jsonb_object_keys(coalesce(headers, '{}'))
            UNION ALL
            SELECT h.no, p.k, p.n, p.part
            FROM jsonb_each_text(coalesce(headers, '{}')) WITH ORDINALITY AS h(header, content, no),
            LATERAL (VALUES (1, octet_length(convert_to(h.header, 'UTF8')), convert_to(h.header, 'UTF8')),
                (2, coalesce(octet_length(convert_to(h.content, 'UTF8')) + 1, 0), coalesce(convert_to(h.content, 'UTF8'), ''))) AS p(k, n, part)
        ) AS p ORDER BY p.no, p.k
    LOOP
        WHILE n > 127 LOOP
            encoded := encoded || set_byte('\x00', 0, (n & 127 | 128)::integer); --
            n := n >> 7; --
        END LOOP; --
        encoded := encoded || set_byte('\x00', 0, n::integer) || part; --
    END LOOP; --
    RETURN encoded; --
END $body$;

-- Inserts a message, as Outbox.InsertTx does, and returns its dedup_id. For triggers, and for
-- programs that are not written in Go.
CREATE OR REPLACE FUNCTION {{table:_insert}}(topic text, key text, payload text, headers jsonb DEFAULT '{}',
    dedup_id text DEFAULT NULL, not_before timestamptz DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $body$
DECLARE
    message_id text := coalesce(nullif(dedup_id, ''), gen_random_uuid()::text); --
    key_bytes bytea := convert_to(coalesce(key, ''), 'UTF8'); --
    shard_no smallint; --
BEGIN
    IF topic IS NULL OR topic !~ '^[!-~]{1,249}$' THEN
        RAISE EXCEPTION 'outbox: topic must be 1 to 249 characters of printable ASCII without spaces' USING ERRCODE = '22023'; --
    ELSIF octet_length(convert_to(message_id, 'UTF8')) > 255 OR message_id ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'outbox: dedup_id must have at most 255 bytes, and no control characters' USING ERRCODE = '22023'; --
    ELSIF length(key_bytes) > 4096 THEN
        RAISE EXCEPTION 'outbox: key must have at most 4096 bytes' USING ERRCODE = '22023'; --
    ELSIF not_before < 'epoch' OR not_before >= '2200-01-01 00:00:00+00' THEN
        RAISE EXCEPTION 'outbox: not_before must be in the years 1970 to 2199' USING ERRCODE = '22023'; --
    END IF; --
    shard_no := {{table:_shard}}(CASE WHEN key_bytes = '' THEN convert_to(message_id, 'UTF8') ELSE key_bytes END); --
    IF not_before IS NULL THEN
        INSERT INTO {{table}} (shard, topic, dedup_id, key, headers, payload)
        VALUES (shard_no, topic, message_id, key_bytes, {{table:_headers}}(headers), convert_to(payload, 'UTF8')); --
    ELSE
        INSERT INTO {{table:_scheduled}} (not_before, shard, topic, dedup_id, key, headers, payload)
        VALUES (not_before, shard_no, topic, message_id, key_bytes, {{table:_headers}}(headers), convert_to(payload, 'UTF8')); --
    END IF; --
    RETURN message_id; --
END $body$;
