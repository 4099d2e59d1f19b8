package sqladapter

import (
	"context"
	"strings"

	"github.com/onceward/onceward/internal/sqlerr"
)

func preflightSQLite(ctx context.Context, p *preflight) error {
	schema := p.cfg.Schema
	if schema == "" {
		schema = "main"
	}
	if _, err := p.scan(ctx, `SELECT coalesce(file, '') FROM pragma_database_list WHERE name = ?`,
		[]any{schema}, &p.server); err != nil {
		return err
	}
	settings := map[string]string{}
	for _, name := range []string{"journal_mode", "synchronous", "busy_timeout"} {
		pragma := `PRAGMA ` + fullName(SQLite, schema, name)
		if name == "busy_timeout" { // it belongs to the connection
			pragma = `PRAGMA busy_timeout`
		}
		var value string
		if _, err := p.scan(ctx, pragma, nil, &value); err != nil {
			return err
		}
		settings[name] = value
	}
	p.add(sqliteSettings(settings)...)
	if p.server == "" {
		p.add(finding(CodeInMemory, "the database has no file"))
	} else if err := p.txlock(ctx, settings["busy_timeout"]); err != nil {
		return err
	}
	return p.tables(ctx, p.sqliteTable)
}

// sqliteSettings judges what the pragmas say.
func sqliteSettings(settings map[string]string) (found []Finding) {
	journal := strings.ToLower(settings["journal_mode"])
	if journal == "off" || journal == "memory" {
		found = append(found, finding(CodeJournal, "journal_mode is %s", journal))
	}
	switch settings["synchronous"] {
	case "0":
		found = append(found, finding(CodeSynchronous, "synchronous is OFF").as(Critical))
	case "1":
		found = append(found, finding(CodeSynchronous, "synchronous is NORMAL"))
	}
	if settings["busy_timeout"] == "0" {
		found = append(found, finding(CodeBusyTimeout, "busy_timeout is 0"))
	}
	return found
}

// txlock begins a transaction as the pool does, and looks whether another session can begin to
// write meanwhile. A third one that writes just then makes it look as it should be.
func (p *preflight) txlock(ctx context.Context, busyTimeout string) error {
	if p.db.Stats().MaxOpenConnections == 1 {
		p.add(finding(CodeNotSeen,
			"how transactions begin was not found out: that needs two connections, and the pool has one"))
		return nil
	}
	other, err := p.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = other.Close() }()
	if _, err := other.ExecContext(ctx, `PRAGMA busy_timeout = 0`); err != nil {
		return err
	}
	defer func() {
		_, _ = other.ExecContext(context.WithoutCancel(ctx), `PRAGMA busy_timeout = `+busyTimeout)
	}()
	tx, err := p.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	const busy = 5
	_, err = other.ExecContext(ctx, `BEGIN IMMEDIATE`)
	if sqlerr.SQLite(err) == busy {
		return nil
	}
	if err != nil {
		return err
	}
	p.add(finding(CodeTxLock, "a transaction that has begun does not keep another from writing"))
	_, err = other.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`)
	return err
}

func (p *preflight) sqliteTable(ctx context.Context, table string) (s shape, err error) {
	schema := p.cfg.Schema
	if schema == "" {
		schema = "main"
	}
	name := []any{table, schema}
	var columns, keys int
	if _, err := p.scan(ctx,
		`SELECT count(*), count(CASE WHEN pk > 0 THEN 1 END), count(CASE WHEN name IN (`+
			agedBy+`) THEN 1 END) > 0`+
			` FROM pragma_table_info(?, ?)`, name, &columns, &keys, &s.aged); err != nil ||
		columns == 0 {
		return shape{missing: columns == 0}, err
	}
	if _, err := p.scan(ctx,
		`SELECT count(CASE WHEN "unique" AND NOT partial THEN 1 END), count(CASE WHEN NOT "unique" THEN 1 END)`+
			` FROM pragma_index_list(?, ?)`, name, &s.unique, &s.plain); err != nil {
		return s, err
	}
	s.unique += keys
	s.keys, err = p.keysOf(ctx, sqliteCollation,
		`SELECT DISTINCT x.name, x.coll FROM pragma_index_list(?1, ?2) l, pragma_index_xinfo(l.name, ?2) x`+
			` WHERE l."unique" AND x.key AND x.name IS NOT NULL`, name...)
	return s, err
}

func sqliteCollation(name string) (Severity, bool) {
	return Critical, !strings.EqualFold(name, "BINARY")
}
