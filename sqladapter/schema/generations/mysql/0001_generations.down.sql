-- Also what a rotation has left that was cut off.
DROP VIEW IF EXISTS {{table:_results}};
DROP VIEW IF EXISTS {{table}};
DROP TABLE IF EXISTS {{next}}, {{next_results}}, {{open}}, {{open_results}};
DROP TABLE IF EXISTS {{sealed}}, {{sealed_results}}, {{gone}}, {{gone_results}};
DROP TABLE IF EXISTS {{table:_meta}};
