-- Every claim and record goes with it: what was done is done again when it comes again.
DROP TABLE IF EXISTS {{table}};

DROP TABLE IF EXISTS {{table:_forgets}};
