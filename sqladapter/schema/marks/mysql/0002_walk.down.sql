ALTER TABLE {{table}} ADD INDEX {{index:_expiry}} (created_at), ALGORITHM=INPLACE, LOCK=NONE;

ALTER TABLE {{table:_meta}}
    DROP COLUMN walk_id,
    DROP COLUMN walk_begun_ms,
    DROP COLUMN newest_ms;
