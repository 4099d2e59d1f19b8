-- Where retention stands in its pass over the table: the last id that it has seen, and when
-- the pass began. newest_ms is when the newest mark was made of those that it has seen.
ALTER TABLE {{table:_meta}}
    ADD COLUMN walk_id       BINARY(16) NOT NULL DEFAULT '',
    ADD COLUMN walk_begun_ms BIGINT     NOT NULL DEFAULT 0,
    ADD COLUMN newest_ms     BIGINT     NOT NULL DEFAULT 0;

-- Retention reads the table in the order of its key, and needs no index by age.
ALTER TABLE {{table}} DROP INDEX {{index:_expiry}}, ALGORITHM=INPLACE, LOCK=NONE;
