-- The tables of the generations: those that the views read, and those that could not be dropped
-- yet when they were older than that. Their names say how often the table was rotated.
DO $onceward$
DECLARE
    gone regclass; --
    base text := trim(both '"' from '{{bare}}'); --
    place text := left('{{table}}', length('{{table}}') - length('{{bare}}')); --
    suffix text; --
BEGIN
    FOR gone IN
        SELECT DISTINCT d.refobjid::regclass FROM pg_depend d
            JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
            JOIN pg_class c ON d.refclassid = 'pg_class'::regclass AND c.oid = d.refobjid
            WHERE r.ev_class IN (to_regclass('{{table}}'), to_regclass('{{table:_results}}')) AND c.relkind = 'r'
    LOOP
        EXECUTE format('DROP TABLE %s CASCADE', gone); --
    END LOOP; --
    IF to_regclass('{{state}}') IS NOT NULL THEN
        FOR suffix IN
            SELECT '_g' || n || kind FROM {{state}}, generate_series(oldest, generation) AS n,
                unnest(ARRAY['', '_open', '_results']) AS kind
        LOOP
            -- A name that would be cut is cut as Derive of package sqlname does it.
            IF length(base) + length(suffix) > 63 THEN
                suffix := '_' || left(encode(sha256(convert_to(base, 'UTF8')), 'hex'), 8) || suffix; --
            END IF; --
            EXECUTE format('DROP TABLE IF EXISTS %s%I', place, left(base, 63 - length(suffix)) || suffix); --
        END LOOP; --
    END IF; --
END
$onceward$;
DROP VIEW IF EXISTS {{table:_results}};
DROP VIEW IF EXISTS {{table}};
DROP TABLE IF EXISTS {{state}};
DROP TABLE IF EXISTS {{table:_meta}};
