package sqlstore

import (
	"database/sql"
	"strings"

	"github.com/onceward/onceward/dedup/driver"
)

// mysqlStore uses the SQL that MySQL 8 and MariaDB 10.6 have in common.
type mysqlStore struct {
	names storeNames
	from  string // SELECT ... FROM
	lean  string // the same, without results
}

// mysqlClock is the time at which its statement began, which is before it has waited for locks.
// SYSDATE would be later, but it is in the session's time zone, which can jump.
const mysqlClock = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

func newMySQLStore(names storeNames) *mysqlStore {
	behind := ", " + mysqlClock + " FROM " + names.table
	return &mysqlStore{names, "SELECT " + strings.Join(claimColumns, ", ") + behind,
		"SELECT " + withoutResult() + behind}
}

func (d *mysqlStore) isolation() sql.IsolationLevel { return sql.LevelReadCommitted }
func (d *mysqlStore) readsInTx() bool               { return true }
func (d *mysqlStore) chunk() int                    { return 500 }
func (d *mysqlStore) begin() string                 { return "" }

func (d *mysqlStore) insert(ids []driver.ID) statement {
	return statement{"INSERT INTO " + d.names.table + " (id) VALUES " +
		strings.TrimSuffix(strings.Repeat("(?), ", len(ids)), ", ") +
		" ON DUPLICATE KEY UPDATE id = id", idArgs(ids)}
}

// load forces the primary key: a scan of the table would lock rows of others.
func (d *mysqlStore) load(ids []driver.ID, lock bool) statement {
	query := d.from + " FORCE INDEX (PRIMARY) WHERE id IN (" + marksOf(len(ids)) + ") ORDER BY id"
	if lock {
		query += " FOR UPDATE"
	}
	return statement{query, idArgs(ids)}
}

func (d *mysqlStore) save(rows []*claimRow) statement {
	return upsert(d.names.table, "ON DUPLICATE KEY UPDATE ", "VALUES(?)", rows)
}

func (d *mysqlStore) remove(ids []driver.ID) statement {
	return statement{"DELETE FROM " + d.names.table + " WHERE id IN (" + marksOf(len(ids)) + ")",
		idArgs(ids)}
}

func (d *mysqlStore) due(expired bool, limit int) statement {
	return statement{d.lean + dueWhere(expired, mysqlClock) + " LIMIT ? FOR UPDATE SKIP LOCKED",
		[]any{int64(limit)}}
}

func (d *mysqlStore) page(after driver.ID, states string, limit int) statement {
	return statement{d.lean + " WHERE state IN (" + states + ") AND id > ? ORDER BY id LIMIT ?",
		[]any{after[:], int64(limit)}}
}

func (d *mysqlStore) clock() string { return "SELECT " + mysqlClock }

func (d *mysqlStore) scan(from int64, limit int) statement {
	return statement{"SELECT id, state, since, expires, " + mysqlClock + " FROM " + d.names.table +
		scanWhere +
		"? ORDER BY expires LIMIT ?", []any{from, int64(limit)}}
}

func (d *mysqlStore) forgot() string       { return "UPDATE " + d.names.forgets + " SET n = n + 1" }
func (d *mysqlStore) countForgets() string { return "SELECT n FROM " + d.names.forgets }
