package sqlpreflight

import (
	"context"
	"strings"

	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

func (in *inspection) sqlite(ctx context.Context) error {
	schema := in.cfg.Schema
	if schema == "" {
		schema = "main"
	}
	if _, err := in.scan(ctx, `SELECT coalesce(file, '') FROM pragma_database_list WHERE name = ?`,
		[]any{schema}, &in.Server); err != nil {
		return err
	}
	settings := map[string]string{}
	for _, name := range []string{"journal_mode", "synchronous", "busy_timeout"} {
		pragma := `PRAGMA ` + dialect.SQLite.In(schema, name)
		if name == "busy_timeout" { // it belongs to the connection
			pragma = `PRAGMA busy_timeout`
		}
		var value string
		if _, err := in.scan(ctx, pragma, nil, &value); err != nil {
			return err
		}
		settings[name] = value
	}
	in.sqliteSettings(settings)
	if in.Server == "" {
		in.Add(codeInMemory, "the database has no file")
	} else if err := in.txlock(ctx, settings["busy_timeout"]); err != nil {
		return err
	}
	return in.tables(ctx, in.sqliteTable)
}

// sqliteSettings judges what the pragmas say.
func (in *inspection) sqliteSettings(settings map[string]string) {
	journal := strings.ToLower(settings["journal_mode"])
	if journal == "off" || journal == "memory" {
		in.Add(codeJournal, "journal_mode is %s", journal)
	}
	switch settings["synchronous"] {
	case "0":
		in.Add(codeSynchronous, "synchronous is OFF").Severity = preflight.Critical
	case "1":
		in.Add(codeSynchronous, "synchronous is NORMAL")
	}
	if settings["busy_timeout"] == "0" {
		in.Add(codeBusyTimeout, "busy_timeout is 0")
	}
}

// txlock begins a transaction as the pool does, and checks whether another session can begin to
// write meanwhile. If a third session writes at that moment, txlock misses a wrong setting.
func (in *inspection) txlock(ctx context.Context, busyTimeout string) error {
	if in.db.Stats().MaxOpenConnections == 1 {
		in.Add(codeNotSeen,
			"how transactions begin was not found out: that needs two connections, and the pool has one")
		return nil
	}
	other, err := in.db.Conn(ctx)
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
	tx, err := in.conn.BeginTx(ctx, nil)
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
	in.Add(codeTxLock, "a transaction that has begun does not keep another from writing")
	_, err = other.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`)
	return err
}

func (in *inspection) sqliteTable(ctx context.Context, table string) (s shape, err error) {
	schema := in.cfg.Schema
	if schema == "" {
		schema = "main"
	}
	name := []any{table, schema}
	var columns, keys int
	if _, err := in.scan(ctx,
		`SELECT count(*), count(CASE WHEN pk > 0 THEN 1 END), count(CASE WHEN name IN (`+
			agedBy+`) THEN 1 END) > 0`+
			` FROM pragma_table_info(?, ?)`, name, &columns, &keys, &s.aged); err != nil ||
		columns == 0 {
		return shape{missing: columns == 0}, err
	}
	if _, err := in.scan(ctx,
		`SELECT count(CASE WHEN "unique" AND NOT partial THEN 1 END), count(CASE WHEN NOT "unique" THEN 1 END)`+
			` FROM pragma_index_list(?, ?)`, name, &s.unique, &s.plain); err != nil {
		return s, err
	}
	s.unique += keys
	s.keys, err = in.keysOf(ctx, sqliteCollation,
		`SELECT DISTINCT x.name, x.coll FROM pragma_index_list(?1, ?2) l, pragma_index_xinfo(l.name, ?2) x`+
			` WHERE l."unique" AND x.key AND x.name IS NOT NULL`, name...)
	return s, err
}

func sqliteCollation(name string) (preflight.Severity, bool) {
	return preflight.Critical, !strings.EqualFold(name, "BINARY")
}
