-- Marks in generations. A row is as in a table of marks that is kept by deletes, without the
-- index by age: a table is dropped as a whole. Nothing in them is updated or deleted, so there
-- is nothing to vacuum, and a vacuum would hold a rotation up. Names change with every rotation:
-- only the newest table can be marked in.
DO $onceward$
BEGIN
    IF to_regclass('{{state}}') IS NULL THEN --
        -- One row: which generation is open, and since when (ms since 1970); the oldest that
        -- has not been dropped.
        CREATE TABLE {{state}} (
            one        smallint NOT NULL PRIMARY KEY CHECK (one = 1),
            generation bigint   NOT NULL,
            oldest     bigint   NOT NULL,
            opened_ms  bigint   NOT NULL
        ); --
        CREATE TABLE {{open}} (
            id          uuid   NOT NULL PRIMARY KEY,
            stamp       bigint NOT NULL,
            fingerprint bytea  CHECK (octet_length(fingerprint) = 17)
        ) WITH (autovacuum_enabled = false); --
        CREATE TABLE {{sealed}} (LIKE {{open}} INCLUDING ALL) WITH (autovacuum_enabled = false); --
        CREATE TABLE {{open_results}} (
            id     uuid  NOT NULL PRIMARY KEY,
            result bytea NOT NULL
        ) WITH (autovacuum_enabled = false); --
        CREATE TABLE {{sealed_results}} (LIKE {{open_results}} INCLUDING ALL) WITH (autovacuum_enabled = false); --
        {{marks_view}}; --
        {{results_view}}; --
        INSERT INTO {{state}} (one, generation, oldest, opened_ms)
            VALUES (1, 1, 0, (extract(epoch FROM clock_timestamp()) * 1000)::bigint); --
    END IF; --
END
$onceward$;

-- One row: how long marks are kept, the longest that any user of the table has asked for.
CREATE TABLE IF NOT EXISTS {{table:_meta}} (
    one       smallint NOT NULL PRIMARY KEY CHECK (one = 1),
    window_ms bigint   NOT NULL CHECK (window_ms > 0)
);
{{raise_window}};
