-- The columns stay: if the form were forgotten, a program of another one could mark here after the
-- next migration.
SELECT 1;
