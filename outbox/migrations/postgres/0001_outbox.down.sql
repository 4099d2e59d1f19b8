DROP TABLE IF EXISTS {{table:_parked}};

DROP TABLE IF EXISTS {{table}};
