package sqlpreflight

import (
	"context"

	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

func (in *inspection) postgres(ctx context.Context) error {
	const where = `SELECT coalesce(host(inet_server_addr()), 'a local socket') || ':' || coalesce(inet_server_port(), 0)`
	if _, err := in.scan(ctx, where, nil, &in.Server); err != nil {
		return err
	}
	settings, err := in.settings(ctx,
		`SELECT name, setting FROM pg_settings WHERE name IN ('synchronous_commit', 'fsync',`+
			` 'full_page_writes', 'default_transaction_isolation', 'default_transaction_read_only', 'transaction_read_only',`+
			` 'idle_in_transaction_session_timeout')`)
	if err != nil {
		return err
	}
	in.postgresSettings(settings)
	if err := in.postgresProtocol(ctx); err != nil {
		return err
	}
	return in.tables(ctx, in.postgresTable)
}

// postgresSettings judges what pg_settings says.
func (in *inspection) postgresSettings(settings map[string]string) {
	for _, code := range []string{codeSynchronousCommit, codeFsync, codeFullPageWrites} {
		if settings[code] == "off" {
			in.Add(code, "%s is off", code)
		}
	}
	if settings["default_transaction_read_only"] == "on" ||
		settings["transaction_read_only"] == "on" {
		in.Add(codeReadOnly,
			"transactions are read-only: default_transaction_read_only is %s, transaction_read_only %s",
			settings["default_transaction_read_only"], settings["transaction_read_only"])
	}
	if level := settings["default_transaction_isolation"]; level == "repeatable read" ||
		level == "serializable" {
		in.Add(codeIsolation, "default_transaction_isolation is %s", level)
	}
	if settings["idle_in_transaction_session_timeout"] == "0" {
		in.Add(codeIdleInTransaction, "idle_in_transaction_session_timeout is 0")
	}
}

// postgresProtocol asks the server for the text that it received. The text has a placeholder unless
// the driver has replaced it by the value. The query writes the dollar as chr(36), so that it does
// not find its own search text.
func (in *inspection) postgresProtocol(ctx context.Context) error {
	var extended bool
	var echo string
	_, err := in.scan(ctx, `SELECT strpos(current_query(), chr(36) || '1') > 0, $1::text`,
		[]any{"parameter"}, &extended, &echo)
	if err == nil && !extended {
		in.Add(codeSimpleProtocol, "the driver has put a parameter into the text of the statement")
	}
	return err
}

// postgresParts are the table of a name, or the tables that the view of this name reads: those are
// the generations of marks, which are dropped as a whole.
const postgresParts = `WITH named AS (SELECT oid, relkind = 'v' AS view FROM pg_class WHERE oid = to_regclass($1::text)),` +
	` parts AS (SELECT oid, false AS dropped FROM named WHERE NOT view UNION SELECT c.oid, true FROM named n` +
	` JOIN pg_rewrite r ON r.ev_class = n.oid JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid` +
	` JOIN pg_class c ON d.refclassid = 'pg_class'::regclass AND c.oid = d.refobjid AND c.relkind IN ('r', 'p') WHERE n.view) `

// postgresTable requires no index by age on a table of marks, which it knows by the column stamp:
// retention walks over the table's pages, except on servers before 14.
func (in *inspection) postgresTable(ctx context.Context, table string) (s shape, err error) {
	name := []any{dialect.Postgres.In(in.cfg.Schema, table)}
	var tables int
	_, err = in.scan(ctx, postgresParts+
		`SELECT count(*), coalesce(bool_or(c.relpersistence = 'u'), false),`+
		` coalesce(min((SELECT count(*) FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL)), 0),`+
		` coalesce(min((SELECT count(*) FROM pg_index i WHERE i.indrelid = c.oid AND NOT i.indisunique AND i.indisvalid)), 0),`+
		` coalesce(bool_or(NOT parts.dropped AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND NOT a.attisdropped`+
		` AND a.attname IN (`+agedBy+`) AND (a.attname <> 'stamp' OR current_setting('server_version_num')::int < 140000))), false)`+
		` FROM parts JOIN pg_class c USING (oid)`, name, &tables, &s.unlogged, &s.unique,
		&s.plain, &s.aged)
	if err != nil || tables == 0 {
		return shape{missing: tables == 0}, err
	}
	s.keys, err = in.keysOf(ctx, postgresCollation, `SELECT DISTINCT a.attname::text,`+
		` CASE WHEN NOT o.collisdeterministic THEN 'nondeterministic' WHEN o.collname = 'default' THEN d.datcollate::text ELSE o.collname::text END`+
		` FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)`+
		` JOIN pg_collation o ON o.oid = a.attcollation JOIN pg_database d ON d.datname = current_database()`+
		` WHERE i.indrelid = to_regclass($1::text) AND i.indisunique`, name...)
	return s, err
}

// postgresCollation judges a collation. Two texts are equal when their bytes are, except in
// nondeterministic collations. But the sort order of a language changes with the library that
// defines it, and an index that was built with the old order misses rows.
func postgresCollation(name string) (preflight.Severity, bool) {
	switch name {
	case "C", "POSIX", "ucs_basic":
		return preflight.Note, false
	case "nondeterministic":
		return preflight.Critical, true
	}
	return preflight.Warning, true
}
