DROP TABLE IF EXISTS {{table:_meta}};
DROP TABLE IF EXISTS {{table:_results}};
DROP TABLE IF EXISTS {{table}};
