DROP FUNCTION IF EXISTS {{table:_insert}}(text, text, text, jsonb, text, timestamptz);

DROP FUNCTION IF EXISTS {{table:_headers}}(jsonb);

DROP FUNCTION IF EXISTS {{table:_shard}}(bytea);

DROP TABLE IF EXISTS {{table:_published}};

DROP TABLE IF EXISTS {{table:_scheduled}};
