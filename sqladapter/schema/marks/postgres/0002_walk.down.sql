-- What an earlier attempt may have left, which is not valid.
-- Only since server_version_num 140000.
DROP INDEX CONCURRENTLY IF EXISTS {{table:_expiry}};

-- Older servers have kept it.
-- Only since server_version_num 140000.
CREATE INDEX CONCURRENTLY {{index:_expiry}} ON {{table}} ((stamp >> 30));

ALTER TABLE {{table:_meta}}
    DROP COLUMN IF EXISTS walk_page,
    DROP COLUMN IF EXISTS walk_file,
    DROP COLUMN IF EXISTS walk_begun_ms,
    DROP COLUMN IF EXISTS newest_ms;
