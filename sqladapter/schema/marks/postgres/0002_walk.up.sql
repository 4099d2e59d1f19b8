-- Where retention stands in its pass over the table: the next page, the file that the page is
-- of, and when the pass began. newest_ms is when the newest mark was made of those that
-- retention has seen.
ALTER TABLE {{table:_meta}}
    ADD COLUMN IF NOT EXISTS walk_page     bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS walk_file     bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS walk_begun_ms bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS newest_ms     bigint NOT NULL DEFAULT 0;

-- PostgreSQL 14 and newer reads the table page by page, so retention needs no index by age.
-- Older servers keep it. It runs in no transaction, and holds up nobody.
-- Only since server_version_num 140000.
DROP INDEX CONCURRENTLY IF EXISTS {{table:_expiry}};
