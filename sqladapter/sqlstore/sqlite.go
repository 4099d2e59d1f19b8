package sqlstore

import (
	"database/sql"
	"strings"

	"github.com/onceward/onceward/dedup/driver"
)

// sqliteStore has one writer at a time, so it locks only the database.
type sqliteStore struct {
	names storeNames
	from  string // SELECT ... FROM
	lean  string // the same, without results
}

// sqliteClock has a resolution of milliseconds, the best that SQLite has.
const sqliteClock = `CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000`

func newSQLiteStore(names storeNames) *sqliteStore {
	behind := ", " + sqliteClock + " FROM " + names.table
	return &sqliteStore{names, "SELECT " + strings.Join(claimColumns, ", ") + behind,
		"SELECT " + withoutResult() + behind}
}

func (d *sqliteStore) isolation() sql.IsolationLevel { return sql.LevelDefault }
func (d *sqliteStore) readsInTx() bool               { return false }
func (d *sqliteStore) chunk() int                    { return 500 }

// begin takes the write lock, even where the connection's transactions are deferred. A transaction
// that reads first and writes later fails at once when another has written meanwhile.
func (d *sqliteStore) begin() string {
	return "UPDATE " + d.names.table + " SET state = state WHERE id IS NULL"
}

func (d *sqliteStore) insert(ids []driver.ID) statement {
	return statement{"INSERT INTO " + d.names.table + " (id) VALUES " +
		strings.TrimSuffix(strings.Repeat("(?), ", len(ids)), ", ") +
		" ON CONFLICT (id) DO NOTHING", idArgs(ids)}
}

func (d *sqliteStore) load(ids []driver.ID, _ bool) statement {
	return statement{d.from + " WHERE id IN (" + marksOf(len(ids)) + ")", idArgs(ids)}
}

func (d *sqliteStore) save(rows []*claimRow) statement {
	return upsert(d.names.table, "ON CONFLICT (id) DO UPDATE SET ", "excluded.?", rows)
}

func (d *sqliteStore) remove(ids []driver.ID) statement {
	return statement{"DELETE FROM " + d.names.table + " WHERE id IN (" + marksOf(len(ids)) + ")",
		idArgs(ids)}
}

func (d *sqliteStore) due(expired bool, limit int) statement {
	return statement{d.lean + dueWhere(expired, sqliteClock) + " LIMIT ?", []any{int64(limit)}}
}

// page repeats the condition of the partial index of claims that have not ended. SQLite does not
// see that one state implies that condition, and would read the whole table.
func (d *sqliteStore) page(after driver.ID, states string, limit int) statement {
	if states == "1" {
		states = "1, 5) AND state IN (1"
	}
	return statement{d.lean + " WHERE state IN (" + states + ") AND id > ? ORDER BY id LIMIT ?",
		[]any{after[:], int64(limit)}}
}

func (d *sqliteStore) clock() string { return "SELECT " + sqliteClock }

func (d *sqliteStore) scan(from int64, limit int) statement {
	return statement{"SELECT id, state, since, expires, " + sqliteClock + " FROM " + d.names.table +
		scanWhere +
		"? ORDER BY expires LIMIT ?", []any{from, int64(limit)}}
}

func (d *sqliteStore) forgot() string {
	return "UPDATE " + d.names.forgets + " SET n = n + 1"
}
func (d *sqliteStore) countForgets() string { return "SELECT n FROM " + d.names.forgets }

// dueWhere selects the rows for a sweep, oldest first.
func dueWhere(expired bool, clock string) string {
	if expired {
		return " WHERE expires <= " + clock + " ORDER BY expires"
	}
	return " WHERE state = 1 AND lease_end <= " + clock + " ORDER BY lease_end"
}
