DELETE FROM {{table:_shards}} WHERE shard = 16;

DROP TABLE IF EXISTS {{table:_published}};

DROP TABLE IF EXISTS {{table:_scheduled}};
