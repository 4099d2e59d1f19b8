package sqladapter

import (
	"cmp"
	"context"
	"strconv"
	"strings"
)

// longLockWait is from where a wait for another's lock is long, in seconds.
const longLockWait = 30

func preflightMySQL(ctx context.Context, p *preflight) error {
	// With autocommit off what is asked here opens a transaction, which must not go to the pool.
	defer func() { _, _ = p.conn.ExecContext(context.WithoutCancel(ctx), rollbackNow) }()
	if _, err := p.scan(ctx, `SELECT CONCAT(@@hostname, ':', @@port)`, nil, &p.server); err != nil {
		return err
	}
	// Of the session, where there is a value of its own.
	settings, err := p.settings(ctx,
		`SHOW VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'sync_binlog',`+
			` 'log_bin', 'autocommit', 'innodb_lock_wait_timeout', 'tx_isolation', 'transaction_isolation', 'read_only')`)
	if err != nil {
		return err
	}
	p.add(mysqlSettings(settings)...)
	p.foundRows(ctx)
	return p.tables(ctx, p.mysqlTable)
}

// mysqlSettings judges what SHOW VARIABLES says.
func mysqlSettings(settings map[string]string) (found []Finding) {
	if v := settings["innodb_flush_log_at_trx_commit"]; v != "1" {
		found = append(found, finding(CodeFlushLog, "innodb_flush_log_at_trx_commit is %s", v))
	}
	if v := settings["sync_binlog"]; v != "1" && settings["log_bin"] == "ON" {
		found = append(found, finding(CodeSyncBinlog,
			"sync_binlog is %s, and there is a binary log", v))
	}
	if settings["read_only"] == "ON" {
		found = append(found, finding(CodeReadOnly, "read_only is ON"))
	}
	if settings["autocommit"] == "ON" {
		found = append(found, finding(CodeAutocommit, "autocommit is on"))
	}
	if v, err := strconv.Atoi(settings["innodb_lock_wait_timeout"]); err == nil &&
		v > longLockWait {
		found = append(found, finding(CodeLockWait, "innodb_lock_wait_timeout is %d s", v))
	}
	// MariaDB has the second, or both
	level := cmp.Or(settings["transaction_isolation"], settings["tx_isolation"])
	if level == "REPEATABLE-READ" || level == "SERIALIZABLE" {
		f := finding(CodeIsolation, "the isolation of transactions is %s", level)
		f.Why = "more is locked, gaps too; transactions of your own that save results, and meet duplicates without one, can deadlock"
		f.Fix = "begin those at READ COMMITTED, or set it as the default; Do and DoBatch need neither"
		found = append(found, f)
	}
	return found
}

// foundRows changes a row of a temporary table into itself: zero rows are changed, unless the
// connection counts those that were found.
func (p *preflight) foundRows(ctx context.Context) {
	unseen := func(err error) {
		p.add(finding(CodeNotSeen,
			"whether the connection sets clientFoundRows was not found out: %v", err))
	}
	for _, statement := range []string{
		`CREATE TEMPORARY TABLE onceward_preflight (x INT) ENGINE=InnoDB`,
		`INSERT INTO onceward_preflight VALUES (1)`,
	} {
		if _, err := p.conn.ExecContext(ctx, statement); err != nil {
			unseen(err)
			return
		}
	}
	defer func() {
		_, _ = p.conn.ExecContext(context.WithoutCancel(ctx),
			`DROP TEMPORARY TABLE onceward_preflight`)
	}()
	result, err := p.conn.ExecContext(ctx, `UPDATE onceward_preflight SET x = x`)
	if err != nil {
		unseen(err)
		return
	}
	if n, err := result.RowsAffected(); err != nil || n != 0 {
		p.add(finding(CodeFoundRows,
			"an UPDATE that changes nothing says that it has changed %d rows", n))
	}
}

func (p *preflight) mysqlTable(ctx context.Context, table string) (s shape, err error) {
	name := []any{p.cfg.Schema, table}
	const in = ` WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?`
	var kind string
	there, err := p.scan(ctx,
		`SELECT COALESCE(engine, ''), table_type FROM information_schema.tables`+in, name,
		&s.engine, &kind)
	if err != nil || !there {
		return shape{missing: !there}, err
	}
	if kind == "VIEW" {
		return p.mysqlGenerations(ctx, table)
	}
	if _, err := p.scan(ctx,
		`SELECT COUNT(DISTINCT IF(non_unique = 0, index_name, NULL)), COUNT(DISTINCT IF(non_unique = 1, index_name, NULL))`+
			` FROM information_schema.statistics`+in, name, &s.unique, &s.plain); err != nil {
		return s, err
	}
	if _, err := p.scan(ctx, `SELECT COUNT(*) > 0 FROM information_schema.columns`+
		in+` AND column_name IN (`+agedBy+`)`, name, &s.aged); err != nil {
		return s, err
	}
	s.keys, err = p.keysOf(ctx, mysqlCollation,
		`SELECT DISTINCT c.column_name, c.collation_name FROM information_schema.columns c`+
			` JOIN information_schema.statistics i USING (table_schema, table_name, column_name)`+
			` WHERE c.table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND c.table_name = ?`+
			` AND i.non_unique = 0 AND c.collation_name IS NOT NULL`, name...)
	return s, err
}

// mysqlGenerations looks behind the view that [Generations] have for people. Theirs need no index
// by age.
func (p *preflight) mysqlGenerations(ctx context.Context, table string) (shape, error) {
	t, err := newTableName(MySQL, p.cfg.Schema, table)
	if err != nil {
		return shape{}, err
	}
	s, err := p.mysqlTable(ctx, bareName(newTurns(t).open.marks))
	s.aged = false
	return s, err
}

// mysqlCollation: a binary one still takes a text and the same with spaces at its end for one.
func mysqlCollation(name string) (Severity, bool) {
	if strings.HasSuffix(name, "_bin") {
		return Warning, true
	}
	return Critical, true
}
