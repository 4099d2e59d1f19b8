package sqlstore

import (
	"database/sql"
	"strings"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/sqlmigrate"
	"github.com/onceward/onceward/internal/sqlname"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// statement is an SQL text and its parameters.
type statement struct {
	text string
	args []any
}

// storeDialect makes the statements of a [Store]. Those that return rows return claimColumns,
// followed by the clock of the database in microseconds since 1970.
type storeDialect interface {
	isolation() sql.IsolationLevel
	// begin is the first statement of a transaction that writes, or empty.
	begin() string
	// readsInTx says that reading needs a transaction as well.
	readsInTx() bool
	// chunk is how many rows one statement may have.
	chunk() int
	// insert makes empty rows where there are none.
	insert(ids []driver.ID) statement
	// load reads rows, and locks them in the order of their ids. The clock of at least one row is
	// read after all are locked, or else the clock is read before any is locked: an early clock
	// never makes a live lease look lapsed.
	load(ids []driver.ID, lock bool) statement
	// save writes locked rows back.
	save(rows []*claimRow) statement
	// remove deletes rows that are locked.
	remove(ids []driver.ID) statement
	// due locks rows that are due to be swept: expired rows, or else claims that have lapsed. It
	// reads no results, and skips rows that others have locked, where the engine can.
	due(expired bool, limit int) statement
	// page reads rows in some states, without results, in the order of their ids, beginning after
	// an id.
	page(after driver.ID, states string, limit int) statement
	// clock reads the clock. scan reads id, state, since, expires and the clock of rows that expire
	// at the time from or later, in the order in which they expire.
	clock() string
	scan(from int64, limit int) statement
	// forgot increments the number of Forgets, and countForgets reads it.
	forgot() string
	countForgets() string
}

// quickDialect does the most frequent operations in one statement each, which returns the rows that
// it has written. These statements decide as decideClaim and decideFinish do.
type quickDialect interface {
	// insertClaims makes claims of keys that have no row.
	insertClaims(reqs []*driver.ClaimRequest) statement
	// finishClaims ends claims that their owners hold, as succeeded or failed.
	finishClaims(changes []*driver.Finish) statement
}

var storeDialects = map[Dialect]func(storeNames) storeDialect{
	Postgres: func(n storeNames) storeDialect { return newPostgresStore(n) },
	MySQL:    func(n storeNames) storeDialect { return newMySQLStore(n) },
	SQLite:   func(n storeNames) storeDialect { return newSQLiteStore(n) },
}

// storeNames are the tables' names, checked and quoted.
type storeNames struct {
	table   string // with the schema, when there is one
	forgets string // with the schema, too
}

func newStoreNames(cfg Options) (storeNames, error) {
	table := cfg.Table
	switch {
	case !sqlname.Valid(table):
		return storeNames{}, dialect.InputError("Table", sqlname.Form)
	case table == sqlmigrate.Table:
		return storeNames{}, dialect.InputError("Table", "is where versions are recorded")
	case cfg.Schema != "" && !sqlname.Valid(cfg.Schema):
		return storeNames{}, dialect.InputError("Schema", sqlname.Form)
	case cfg.Dialect == SQLite && strings.HasPrefix(strings.ToLower(table), "sqlite_"):
		return storeNames{}, dialect.InputError("Table", "begins with sqlite_, which SQLite reserves")
	}
	d := cfg.Dialect
	return storeNames{table: d.In(cfg.Schema, table),
		forgets: d.In(cfg.Schema, sqlname.Derive(table, "_forgets"))}, nil
}

// withoutResult are claimColumns for callers that do not need results, which may be large.
func withoutResult() string {
	return strings.Join(claimColumns[:len(claimColumns)-1], ", ") + ", NULL"
}

// upsert returns a statement that MySQL and SQLite share, to update existing rows: neither has an
// UPDATE of many rows from parameters.
func upsert(table, conflict, assign string, rows []*claimRow) statement {
	var set []string
	for _, c := range claimColumns[1:] {
		set = append(set, c+" = "+strings.ReplaceAll(assign, "?", c))
	}
	tuple := "(" + marksOf(len(claimColumns)) + ")"
	args := make([]any, 0, len(rows)*len(claimColumns))
	for _, r := range rows {
		args = append(args, r.args()...)
	}
	return statement{"INSERT INTO " + table + " (" + strings.Join(claimColumns, ", ") +
		") VALUES " +
		strings.TrimSuffix(strings.Repeat(tuple+", ", len(rows)), ", ") + " " + conflict +
		strings.Join(set, ", "), args}
}

// args returns the values of claimColumns.
func (r *claimRow) args() []any {
	return []any{
		r.id[:], r.token[:], int64(r.state), int64(r.flags), int64(r.asked), int64(r.attempt),
		r.fence, r.floor, r.leaseEnd, r.since, r.expires,
		dialect.Nullable(r.fingerprint), blob(packOrigin(r.origin)),
		blob([]byte(r.label)), blob(r.steps),
		nullableBlob(r.result),
	}
}

// blob returns NULL for an empty value.
func blob(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}

// nullableBlob returns NULL only for nil, because an empty result is a result.
func nullableBlob(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// marksOf returns n question marks.
func marksOf(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

func idArgs(ids []driver.ID) []any {
	args := make([]any, len(ids))
	for i := range ids {
		args[i] = ids[i][:]
	}
	return args
}
