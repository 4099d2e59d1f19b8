package sqlpreflight

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/advice"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
	"github.com/onceward/onceward/sqladapter/internal/sqlscript"
)

func codesOf(found []preflight.Finding) string {
	var codes []string
	for _, f := range found {
		codes = append(codes, f.Severity.String()+" "+f.Code)
	}
	return strings.Join(codes, ", ")
}

func newInspection() *inspection {
	return &inspection{Report: advice.Report{Table: advices}}
}

// TestSettings: each bad setting gives its finding, and good settings give none.
func TestSettings(t *testing.T) {
	good := map[string]map[string]string{
		"postgres": {"synchronous_commit": "on", "fsync": "on", "full_page_writes": "on",
			"default_transaction_isolation": "read committed",
			"default_transaction_read_only": "off", "transaction_read_only": "off",
			"idle_in_transaction_session_timeout": "60000"},
		"mysql": {"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "1", "log_bin": "ON",
			"autocommit":               "OFF",
			"innodb_lock_wait_timeout": "5", "tx_isolation": "READ-COMMITTED", "read_only": "OFF"},
		"sqlite": {"journal_mode": "wal", "synchronous": "2", "busy_timeout": "5000"},
	}
	judges := map[string]func(*inspection, map[string]string){
		"postgres": (*inspection).postgresSettings, "mysql": (*inspection).mysqlSettings,
		"sqlite": (*inspection).sqliteSettings}
	for _, tt := range []struct{ engine, set, to, want string }{
		{"postgres", "", "", ""},
		{"postgres", "synchronous_commit", "off", "warning synchronous_commit"},
		{"postgres", "synchronous_commit", "local", ""},
		{"postgres", "fsync", "off", "critical fsync"},
		{"postgres", "full_page_writes", "off", "critical full_page_writes"},
		{"postgres", "default_transaction_isolation", "repeatable read", "note isolation"},
		{"postgres", "default_transaction_isolation", "serializable", "note isolation"},
		{"postgres", "default_transaction_read_only", "on", "critical read_only"},
		{"postgres", "transaction_read_only", "on", "critical read_only"},
		{"postgres", "idle_in_transaction_session_timeout", "0", "note idle_in_transaction"},
		{"mysql", "", "", ""},
		{"mysql", "innodb_flush_log_at_trx_commit", "0", "warning innodb_flush_log_at_trx_commit"},
		{"mysql", "innodb_flush_log_at_trx_commit", "2", "warning innodb_flush_log_at_trx_commit"},
		{"mysql", "sync_binlog", "0", "warning sync_binlog"},
		{"mysql", "autocommit", "ON", "note autocommit"},
		{"mysql", "innodb_lock_wait_timeout", "50", "note innodb_lock_wait_timeout"},
		{"mysql", "tx_isolation", "REPEATABLE-READ", "note isolation"},
		{"mysql", "transaction_isolation", "SERIALIZABLE", "note isolation"},
		{"mysql", "read_only", "ON", "critical read_only"},
		{"sqlite", "", "", ""},
		{"sqlite", "journal_mode", "DELETE", ""},
		{"sqlite", "journal_mode", "off", "critical journal_mode"},
		{"sqlite", "journal_mode", "MEMORY", "critical journal_mode"},
		{"sqlite", "synchronous", "0", "critical synchronous"},
		{"sqlite", "synchronous", "1", "warning synchronous"},
		{"sqlite", "busy_timeout", "0", "warning busy_timeout"},
	} {
		settings := map[string]string{}
		for name, value := range good[tt.engine] {
			settings[name] = value
		}
		settings[tt.set] = tt.to
		in := newInspection()
		judges[tt.engine](in, settings)
		assert.Equal(t, tt.want, codesOf(in.Findings), "%s: %s = %s", tt.engine, tt.set, tt.to)
	}
	in := newInspection()
	in.mysqlSettings(map[string]string{"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "0",
		"log_bin": "OFF"})
	assert.Empty(t, in.Findings, "without a binary log")
}

func TestJudge(t *testing.T) {
	for want, s := range map[string]shape{
		"":                           {unique: 1, plain: 1, aged: true},
		"critical no_table":          {missing: true},
		"critical unlogged":          {unlogged: true, unique: 1},
		"critical engine":            {engine: "MyISAM", unique: 1},
		"critical no_unique_index":   {plain: 1, engine: "innodb"},
		"warning no_retention_index": {unique: 1, aged: true},
		"critical collation, warning collation": {unique: 1,
			keys: []keyColumn{{"a", "ci", preflight.Critical}, {"b", "bin", preflight.Warning}}},
	} {
		in := newInspection()
		in.judge("t", s)
		assert.Equal(t, want, codesOf(in.Findings), "%+v", s)
	}
}

// TestPreflightOfMySQLFails: a server has every bad setting. It answers only the settings that the
// preflight needs, by MySQL's own names. Then it refuses a temporary table, and fails. The earlier
// findings are returned with the error, and no transaction returns to the pool.
func TestPreflightOfMySQLFails(t *testing.T) {
	broken := errors.New("broken")
	db, _ := sqlscript.Open(t,
		sqlscript.Step{Like: "@@hostname", Rows: func([]any) [][]driver.Value {
			return [][]driver.Value{{"db:3306"}}
		}},
		sqlscript.Step{Like: "SHOW VARIABLES", Text: func(text string) (rows [][]driver.Value) {
			for name, value := range map[string]string{
				"innodb_flush_log_at_trx_commit": "0", "sync_binlog": "0", "log_bin": "ON",
				"autocommit":               "ON",
				"innodb_lock_wait_timeout": "50", "transaction_isolation": "SERIALIZABLE",
				"read_only": "ON",
			} {
				if strings.Contains(text, "'"+name+"'") {
					rows = append(rows, []driver.Value{name, value})
				}
			}
			return rows
		}},
		sqlscript.Step{Like: "CREATE TEMPORARY TABLE", Err: broken},
		sqlscript.Step{Like: "information_schema.tables", Err: broken},
		sqlscript.Step{Query: `ROLLBACK`})
	found, err := Run(t.Context(), db,
		Config{Dialect: dialect.MySQL, Tables: []string{"marks"}})
	const want = "critical read_only, warning innodb_flush_log_at_trx_commit, warning sync_binlog, " +
		"note autocommit, note innodb_lock_wait_timeout, note isolation, note not_seen"
	require.ErrorIs(t, err, broken)
	assert.Equal(t, want, codesOf(found))
	for _, f := range found {
		assert.Equal(t, "db:3306", f.Server)
		assert.NotContains(t, f.Detail, "is ,", "a setting that was not asked for")
	}
}

func TestPreflightRefuses(t *testing.T) {
	db, _ := sqlscript.Open(t)
	for field, call := range map[string]func() ([]preflight.Finding, error){
		"ctx": func() ([]preflight.Finding, error) {
			return Run(nil, db, Config{Dialect: dialect.Postgres}) //nolint:staticcheck // nil on purpose
		},
		"db": func() ([]preflight.Finding, error) {
			return Run(context.Background(), (*sql.DB)(nil),
				Config{Dialect: dialect.Postgres})
		},
		"Dialect": func() ([]preflight.Finding, error) {
			return Run(t.Context(), db, Config{Dialect: dialect.SQLServer})
		},
		"Schema": func() ([]preflight.Finding, error) {
			return Run(t.Context(), db, Config{Dialect: dialect.SQLite, Schema: `"`})
		},
		"Tables": func() ([]preflight.Finding, error) {
			return Run(t.Context(), db,
				Config{Dialect: dialect.SQLite, Tables: []string{"a", "b'"}})
		},
	} {
		_, err := call()
		var input *dedup.InputError
		require.ErrorAs(t, err, &input, field)
		assert.Equal(t, field, input.Field)
	}
}
