DROP TABLE IF EXISTS {{table:_published}};

DROP TABLE IF EXISTS {{table:_scheduled}};
