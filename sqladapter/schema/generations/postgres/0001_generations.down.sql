-- The tables of the generations are those that the views read: their names say how often they
-- were rotated.
DO $onceward$
DECLARE
    gone regclass; --
BEGIN
    FOR gone IN
        SELECT DISTINCT d.refobjid::regclass FROM pg_depend d
            JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
            JOIN pg_class c ON d.refclassid = 'pg_class'::regclass AND c.oid = d.refobjid
            WHERE r.ev_class IN (to_regclass('{{table}}'), to_regclass('{{table:_results}}')) AND c.relkind = 'r'
    LOOP
        EXECUTE format('DROP TABLE %s CASCADE', gone); --
    END LOOP; --
END
$onceward$;
DROP VIEW IF EXISTS {{table:_results}};
DROP VIEW IF EXISTS {{table}};
DROP TABLE IF EXISTS {{state}};
DROP TABLE IF EXISTS {{table:_meta}};
