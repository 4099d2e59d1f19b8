SELECT count(*) FROM pg_class WHERE oid = to_regclass('"Shop"."marks"') AND relkind <> 'v'

-- Marks in generations. A row is as in a table of marks that is kept by deletes, without the
-- index by age: a table is dropped as a whole. Nothing in them is updated or deleted, so there
-- is nothing to vacuum, and a vacuum would hold a rotation up. Names change with every rotation:
-- only the newest table can be marked in.
DO $onceward$
BEGIN
    IF to_regclass('"Shop"."marks_generation"') IS NULL THEN --
        -- One row: which generation is open, and since when (ms since 1970); the oldest that
        -- has not been dropped.
        CREATE TABLE "Shop"."marks_generation" (
            one        smallint NOT NULL PRIMARY KEY CHECK (one = 1),
            generation bigint   NOT NULL,
            oldest     bigint   NOT NULL,
            opened_ms  bigint   NOT NULL
        ); --
        CREATE TABLE "Shop"."marks_g1_open" (
            id          uuid   NOT NULL PRIMARY KEY,
            stamp       bigint NOT NULL,
            fingerprint bytea  CHECK (octet_length(fingerprint) = 17)
        ) WITH (autovacuum_enabled = false); --
        CREATE TABLE "Shop"."marks_g0" (LIKE "Shop"."marks_g1_open" INCLUDING ALL) WITH (autovacuum_enabled = false); --
        CREATE TABLE "Shop"."marks_g1_results" (
            id     uuid  NOT NULL PRIMARY KEY,
            result bytea NOT NULL
        ) WITH (autovacuum_enabled = false); --
        CREATE TABLE "Shop"."marks_g0_results" (LIKE "Shop"."marks_g1_results" INCLUDING ALL) WITH (autovacuum_enabled = false); --
        CREATE OR REPLACE VIEW "Shop"."marks" AS SELECT id, stamp, fingerprint FROM "Shop"."marks_g1_open" UNION ALL SELECT id, stamp, fingerprint FROM "Shop"."marks_g0"; --
        CREATE OR REPLACE VIEW "Shop"."marks_results" AS SELECT id, result FROM "Shop"."marks_g1_results" UNION ALL SELECT id, result FROM "Shop"."marks_g0_results"; --
        INSERT INTO "Shop"."marks_generation" (one, generation, oldest, opened_ms)
            VALUES (1, 1, 0, (extract(epoch FROM clock_timestamp()) * 1000)::bigint); --
    END IF; --
END
$onceward$;

-- One row: how long marks are kept, the longest that any user of the table has asked for.
CREATE TABLE IF NOT EXISTS "Shop"."marks_meta" (
    one       smallint NOT NULL PRIMARY KEY CHECK (one = 1),
    window_ms bigint   NOT NULL CHECK (window_ms > 0)
);

INSERT INTO "Shop"."marks_meta" AS m (one, window_ms) VALUES (1, 3600000) ON CONFLICT (one) DO UPDATE SET window_ms = greatest(m.window_ms, excluded.window_ms);

CREATE TABLE IF NOT EXISTS "Shop"."onceward_migrations" (component text COLLATE "C" NOT NULL, table_name text COLLATE "C" NOT NULL, version integer NOT NULL, PRIMARY KEY (component, table_name));

INSERT INTO "Shop"."onceward_migrations" (component, table_name, version) VALUES ('generations', 'marks', 1) ON CONFLICT (component, table_name) DO UPDATE SET version = excluded.version;


SELECT generation FROM "Shop"."marks_generation"

INSERT INTO "Shop"."marks_g7_open" (id, stamp, fingerprint) SELECT $1::uuid, (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint << 20 | $2::bigint), $3::bytea WHERE (SELECT generation FROM "Shop"."marks_generation") = 7 AND NOT EXISTS (SELECT 1 FROM "Shop"."marks_g6" AS p WHERE p.id = $1::uuid OFFSET 0) ON CONFLICT (id) DO NOTHING RETURNING uuid_send(id), stamp

INSERT INTO "Shop"."marks_g7_open" (id, stamp) SELECT b.id, (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint << 20 | $2::bigint) FROM unnest($1::text::uuid[]) AS b(id) WHERE (SELECT generation FROM "Shop"."marks_generation") = 7 AND NOT EXISTS (SELECT 1 FROM "Shop"."marks_g6" AS p WHERE p.id = b.id OFFSET 0) ON CONFLICT (id) DO NOTHING RETURNING uuid_send(id), stamp

SELECT uuid_send(b.id), f.stamp, f.fingerprint, f.stamp >> 20, (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint), f.result FROM unnest($1::text::uuid[]) AS b(id) CROSS JOIN LATERAL (SELECT m.stamp, m.fingerprint, r.result FROM "Shop"."marks_g7_open" AS m LEFT JOIN "Shop"."marks_g7_results" AS r ON r.id = m.id WHERE m.id = b.id UNION ALL SELECT m.stamp, m.fingerprint, r.result FROM "Shop"."marks_g6" AS m LEFT JOIN "Shop"."marks_g6_results" AS r ON r.id = m.id WHERE m.id = b.id OFFSET 0) AS f

INSERT INTO "Shop"."marks_g7_results" (id, result) SELECT id, $2::bytea FROM "Shop"."marks_g7_open" WHERE id = $1::uuid ON CONFLICT (id) DO NOTHING RETURNING uuid_send(id)

SELECT uuid_send(m.id), m.stamp, m.fingerprint, m.stamp >> 20, (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint), r.result FROM "Shop"."marks" AS m LEFT JOIN "Shop"."marks_results" AS r ON r.id = m.id WHERE m.id = $1::uuid

SELECT coalesce(max(stamp >> 20), 0) FROM "Shop"."marks_g7_open" WHERE ctid >= (SELECT format('(%s,0)', greatest(pg_relation_size('"Shop"."marks_g7_open"') / current_setting('block_size')::bigint - 64, 0))::tid)

CREATE TABLE "Shop"."marks_g8_open" (LIKE "Shop"."marks_g7_open" INCLUDING ALL) WITH (autovacuum_enabled = false)

CREATE TABLE "Shop"."marks_g8_results" (LIKE "Shop"."marks_g7_results" INCLUDING ALL) WITH (autovacuum_enabled = false)

DO $onceward$ DECLARE old pg_class%ROWTYPE; r record; BEGIN SELECT * INTO old FROM pg_class WHERE oid = '"Shop"."marks_g7_open"'::regclass; IF has_schema_privilege(old.relowner, old.relnamespace, 'CREATE') THEN EXECUTE 'ALTER TABLE "Shop"."marks_g8_open" OWNER TO ' || quote_ident(pg_get_userbyid(old.relowner)); END IF; FOR r IN SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS who FROM pg_class AS n, aclexplode(n.relacl) AS a WHERE n.oid = '"Shop"."marks_g8_open"'::regclass AND a.grantee <> n.relowner LOOP EXECUTE 'REVOKE ALL ON TABLE "Shop"."marks_g8_open" FROM ' || r.who; END LOOP; FOR r IN SELECT a.privilege_type AS what, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS who, CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END AS option FROM pg_class AS n, aclexplode(coalesce(old.relacl, acldefault('r', old.relowner))) AS a WHERE n.oid = '"Shop"."marks_g8_open"'::regclass AND a.grantee <> n.relowner LOOP EXECUTE 'GRANT ' || r.what || ' ON TABLE "Shop"."marks_g8_open" TO ' || r.who || r.option; END LOOP; END $onceward$

DO $onceward$ DECLARE old pg_class%ROWTYPE; r record; BEGIN SELECT * INTO old FROM pg_class WHERE oid = '"Shop"."marks_g7_results"'::regclass; IF has_schema_privilege(old.relowner, old.relnamespace, 'CREATE') THEN EXECUTE 'ALTER TABLE "Shop"."marks_g8_results" OWNER TO ' || quote_ident(pg_get_userbyid(old.relowner)); END IF; FOR r IN SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS who FROM pg_class AS n, aclexplode(n.relacl) AS a WHERE n.oid = '"Shop"."marks_g8_results"'::regclass AND a.grantee <> n.relowner LOOP EXECUTE 'REVOKE ALL ON TABLE "Shop"."marks_g8_results" FROM ' || r.who; END LOOP; FOR r IN SELECT a.privilege_type AS what, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS who, CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END AS option FROM pg_class AS n, aclexplode(coalesce(old.relacl, acldefault('r', old.relowner))) AS a WHERE n.oid = '"Shop"."marks_g8_results"'::regclass AND a.grantee <> n.relowner LOOP EXECUTE 'GRANT ' || r.what || ' ON TABLE "Shop"."marks_g8_results" TO ' || r.who || r.option; END LOOP; END $onceward$

CREATE OR REPLACE VIEW "Shop"."marks" AS SELECT id, stamp, fingerprint FROM "Shop"."marks_g8_open" UNION ALL SELECT id, stamp, fingerprint FROM "Shop"."marks_g7_open"

CREATE OR REPLACE VIEW "Shop"."marks_results" AS SELECT id, result FROM "Shop"."marks_g8_results" UNION ALL SELECT id, result FROM "Shop"."marks_g7_results"

ALTER TABLE "Shop"."marks_g7_open" RENAME TO "marks_g7"

UPDATE "Shop"."marks_generation" SET generation = 8, opened_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint
