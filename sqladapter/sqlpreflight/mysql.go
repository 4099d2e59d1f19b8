package sqlpreflight

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// longLockWait is the longest wait for a lock that is not reported, in seconds.
const longLockWait = 30

func (in *inspection) mysql(ctx context.Context) error {
	// With autocommit off the queries here open a transaction, which must not go back to the pool.
	defer func() { _, _ = in.conn.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`) }()
	if _, err := in.scan(ctx, `SELECT CONCAT(@@hostname, ':', @@port)`, nil, &in.Server); err != nil {
		return err
	}
	// SHOW VARIABLES returns the session's value, if the session has one of its own.
	settings, err := in.settings(ctx,
		`SHOW VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'sync_binlog',`+
			` 'log_bin', 'autocommit', 'innodb_lock_wait_timeout', 'tx_isolation', 'transaction_isolation', 'read_only')`)
	if err != nil {
		return err
	}
	in.mysqlSettings(settings)
	in.foundRows(ctx)
	return in.tables(ctx, in.mysqlTable)
}

// mysqlSettings judges what SHOW VARIABLES says.
func (in *inspection) mysqlSettings(settings map[string]string) {
	if v := settings["innodb_flush_log_at_trx_commit"]; v != "1" {
		in.Add(codeFlushLog, "innodb_flush_log_at_trx_commit is %s", v)
	}
	if v := settings["sync_binlog"]; v != "1" && settings["log_bin"] == "ON" {
		in.Add(codeSyncBinlog, "sync_binlog is %s, and there is a binary log", v)
	}
	if settings["read_only"] == "ON" {
		in.Add(codeReadOnly, "read_only is ON")
	}
	if settings["autocommit"] == "ON" {
		in.Add(codeAutocommit, "autocommit is on")
	}
	if v, err := strconv.Atoi(settings["innodb_lock_wait_timeout"]); err == nil &&
		v > longLockWait {
		in.Add(codeLockWait, "innodb_lock_wait_timeout is %d s", v)
	}
	// MariaDB has only tx_isolation, or both
	level := cmp.Or(settings["transaction_isolation"], settings["tx_isolation"])
	if level == "REPEATABLE-READ" || level == "SERIALIZABLE" {
		f := in.Add(codeIsolation, "the isolation of transactions is %s", level)
		f.Why = "more is locked, gaps too; transactions of your own can deadlock that save results, " +
			"and meet duplicates without one"
		f.Fix = "begin those at READ COMMITTED, or set it as the default; Do and DoBatch need neither"
	}
}

// foundRows changes a row of a temporary table into itself: the server reports zero changed rows,
// unless the connection counts found rows.
func (in *inspection) foundRows(ctx context.Context) {
	unseen := func(err error) {
		in.Add(codeNotSeen,
			"whether the connection sets clientFoundRows was not found out: %v", err)
	}
	for _, statement := range []string{
		`CREATE TEMPORARY TABLE onceward_preflight (x INT) ENGINE=InnoDB`,
		`INSERT INTO onceward_preflight VALUES (1)`,
	} {
		if _, err := in.conn.ExecContext(ctx, statement); err != nil {
			unseen(err)
			return
		}
	}
	defer func() {
		_, _ = in.conn.ExecContext(context.WithoutCancel(ctx),
			`DROP TEMPORARY TABLE onceward_preflight`)
	}()
	result, err := in.conn.ExecContext(ctx, `UPDATE onceward_preflight SET x = x`)
	if err != nil {
		unseen(err)
		return
	}
	if n, err := result.RowsAffected(); err != nil || n != 0 {
		in.Add(codeFoundRows,
			"an UPDATE that changes nothing says that it has changed %d rows", n)
	}
}

// mysqlTable requires no index by age on a table of marks, which it knows by the column owner:
// retention walks over the table's key.
func (in *inspection) mysqlTable(ctx context.Context, table string) (s shape, err error) {
	name := []any{in.cfg.Schema, table}
	const where = ` WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?`
	var kind string
	there, err := in.scan(ctx,
		`SELECT COALESCE(engine, ''), table_type FROM information_schema.tables`+where, name,
		&s.engine, &kind)
	if err != nil || !there {
		return shape{missing: !there}, err
	}
	if kind == "VIEW" {
		return in.mysqlGenerations(ctx, table)
	}
	if _, err := in.scan(ctx,
		`SELECT COUNT(DISTINCT IF(non_unique = 0, index_name, NULL)), COUNT(DISTINCT IF(non_unique = 1, index_name, NULL))`+
			` FROM information_schema.statistics`+where, name, &s.unique, &s.plain); err != nil {
		return s, err
	}
	if _, err := in.scan(ctx, `SELECT COUNT(CASE WHEN column_name IN (`+agedBy+`) THEN 1 END) > 0`+
		` AND COUNT(CASE WHEN column_name = 'owner' THEN 1 END) = 0 FROM information_schema.columns`+
		where, name, &s.aged); err != nil {
		return s, err
	}
	s.keys, err = in.keysOf(ctx, mysqlCollation,
		`SELECT DISTINCT c.column_name, c.collation_name FROM information_schema.columns c`+
			` JOIN information_schema.statistics i USING (table_schema, table_name, column_name)`+
			` WHERE c.table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND c.table_name = ?`+
			` AND i.non_unique = 0 AND c.collation_name IS NOT NULL`, name...)
	return s, err
}

// mysqlGenerations checks the open table behind the view that generations of marks have for people.
// It needs no index by age.
func (in *inspection) mysqlGenerations(ctx context.Context, table string) (shape, error) {
	s, err := in.mysqlTable(ctx, dialect.Stem(table)+"_open")
	s.aged = false
	return s, err
}

// mysqlCollation judges a collation. Even a binary collation takes two texts for equal that differ
// only in spaces at the end.
func mysqlCollation(name string) (preflight.Severity, bool) {
	if strings.HasSuffix(name, "_bin") {
		return preflight.Warning, true
	}
	return preflight.Critical, true
}
