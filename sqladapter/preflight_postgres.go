package sqladapter

import "context"

func preflightPostgres(ctx context.Context, p *preflight) error {
	const where = `SELECT coalesce(host(inet_server_addr()), 'a local socket') || ':' || coalesce(inet_server_port(), 0)`
	if _, err := p.scan(ctx, where, nil, &p.server); err != nil {
		return err
	}
	settings, err := p.settings(ctx,
		`SELECT name, setting FROM pg_settings WHERE name IN ('synchronous_commit', 'fsync',`+
			` 'full_page_writes', 'default_transaction_isolation', 'default_transaction_read_only', 'transaction_read_only',`+
			` 'idle_in_transaction_session_timeout')`)
	if err != nil {
		return err
	}
	p.add(postgresSettings(settings)...)
	if err := p.postgresProtocol(ctx); err != nil {
		return err
	}
	return p.tables(ctx, p.postgresTable)
}

// postgresSettings judges what pg_settings says.
func postgresSettings(settings map[string]string) (found []Finding) {
	for _, code := range []Code{CodeSynchronousCommit, CodeFsync, CodeFullPageWrites} {
		if settings[string(code)] == "off" {
			found = append(found, finding(code, "%s is off", string(code)))
		}
	}
	if settings["default_transaction_read_only"] == "on" ||
		settings["transaction_read_only"] == "on" {
		found = append(found, finding(CodeReadOnly,
			"transactions are read-only: default_transaction_read_only is %s, transaction_read_only %s",
			settings["default_transaction_read_only"], settings["transaction_read_only"]))
	}
	if level := settings["default_transaction_isolation"]; level == "repeatable read" ||
		level == "serializable" {
		found = append(found, finding(CodeIsolation, "default_transaction_isolation is %s", level))
	}
	if settings["idle_in_transaction_session_timeout"] == "0" {
		found = append(found, finding(CodeIdleInTransaction,
			"idle_in_transaction_session_timeout is 0"))
	}
	return found
}

// postgresProtocol asks the server for the text that it was sent. The parameter stands in it
// unless the driver has put its value there. The dollar is spelt out where it is looked for.
func (p *preflight) postgresProtocol(ctx context.Context) error {
	var extended bool
	var echo string
	_, err := p.scan(ctx, `SELECT strpos(current_query(), chr(36) || '1') > 0, $1::text`,
		[]any{"parameter"}, &extended, &echo)
	if err == nil && !extended {
		p.add(finding(CodeSimpleProtocol,
			"the driver has put a parameter into the text of the statement"))
	}
	return err
}

// postgresParts are the table of a name, or those that the view of this name reads: of marks in
// generations, which are dropped as a whole.
const postgresParts = `WITH named AS (SELECT oid, relkind = 'v' AS view FROM pg_class WHERE oid = to_regclass($1::text)),` +
	` parts AS (SELECT oid, false AS dropped FROM named WHERE NOT view UNION SELECT c.oid, true FROM named n` +
	` JOIN pg_rewrite r ON r.ev_class = n.oid JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid` +
	` JOIN pg_class c ON d.refclassid = 'pg_class'::regclass AND c.oid = d.refobjid AND c.relkind IN ('r', 'p') WHERE n.view) `

func (p *preflight) postgresTable(ctx context.Context, table string) (s shape, err error) {
	name := []any{fullName(Postgres, p.cfg.Schema, table)}
	var tables int
	_, err = p.scan(ctx, postgresParts+
		`SELECT count(*), coalesce(bool_or(c.relpersistence = 'u'), false),`+
		` coalesce(min((SELECT count(*) FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL)), 0),`+
		` coalesce(min((SELECT count(*) FROM pg_index i WHERE i.indrelid = c.oid AND NOT i.indisunique AND i.indisvalid)), 0),`+
		` coalesce(bool_or(NOT parts.dropped AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND NOT a.attisdropped`+
		` AND a.attname IN (`+agedBy+`))), false)`+
		` FROM parts JOIN pg_class c USING (oid)`, name, &tables, &s.unlogged, &s.unique,
		&s.plain, &s.aged)
	if err != nil || tables == 0 {
		return shape{missing: tables == 0}, err
	}
	s.keys, err = p.keysOf(ctx, postgresCollation, `SELECT DISTINCT a.attname::text,`+
		` CASE WHEN NOT o.collisdeterministic THEN 'nondeterministic' WHEN o.collname = 'default' THEN d.datcollate::text ELSE o.collname::text END`+
		` FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)`+
		` JOIN pg_collation o ON o.oid = a.attcollation JOIN pg_database d ON d.datname = current_database()`+
		` WHERE i.indrelid = to_regclass($1::text) AND i.indisunique`, name...)
	return s, err
}

// postgresCollation: equal is equal byte by byte, but for nondeterministic ones. But the order of
// a language changes with the library that knows it, and an index that was built with the old
// one does not find what is there.
func postgresCollation(name string) (Severity, bool) {
	switch name {
	case "C", "POSIX", "ucs_basic":
		return Note, false
	case "nondeterministic":
		return Critical, true
	}
	return Warning, true
}
