package sqladapter

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// Dialect is the SQL that a database speaks; package sqladapter/sqlserver has one more,
// experimental.
type Dialect = dialect.Dialect

const (
	// Postgres is PostgreSQL 12 or newer.
	Postgres = dialect.Postgres
	// SQLite is SQLite 3.35 or newer, which has RETURNING.
	SQLite = dialect.SQLite
	// MySQL is MySQL 8.0 or newer, and MariaDB 10.6 or newer, with InnoDB.
	MySQL = dialect.MySQL
)

// statement is an SQL text and its parameters.
type statement struct {
	text string
	args []any
}

// statements holds the statements for one table.
type statements struct {
	// form reads the columns of the table of marks, and no row.
	form string
	// raise puts a window on record unless the recorded one is longer.
	raise string
	// texts fill the placeholders of the migrations, besides the names of the table.
	texts map[string]string
	// chunk is how many rows a statement takes at once.
	chunk int
	// insert inserts the rows whose ids are not taken, and returns id and stamp of those.
	insert func(es []entry, salt int64) statement
	// counts says that insert returns no rows, but how many it has inserted. The stamp, which is
	// then the salt itself, shows which rows.
	counts bool
	// salt is how many random bits a stamp has.
	salt int
	// load reads the rows of these ids as they are committed now: id, stamp, fingerprint, when it
	// was made and the clock, both in milliseconds, and the result.
	load func(es []entry) statement
	// apart is load without the results, for the marks of a batch. results reads id and result of
	// the duplicates that have a result. If locked is set, results reads what is committed now, as
	// load does. Both are nil where a batch uses load, too.
	apart   func(es []entry) statement
	results func(es []entry, locked bool) statement
	// earlier is load for the sealed table that came before the table of insert; nil where load
	// reads that table, too.
	earlier func(es []entry) statement
	// peek is load without waiting for other transactions.
	peek func(es []entry) statement
	// ids reads the recorded form of the ids; empty where there is only one form.
	ids string
	// window reads the recorded window, in milliseconds; setWindow writes it.
	window, setWindow string
	// clock reads the database's clock, in milliseconds.
	clock string
	// tick is the unit in which expire counts.
	tick time.Duration
	// expire returns the ids of the rows that are at least ticks older than the newest; its
	// parameters are ticks and limit. It may delete them itself; the statements of forget do the
	// rest.
	expire string
	forget func(es []entry) []string
	// takeBack deletes marks that this transaction has made; nil where there is no previous table.
	takeBack func(es []entry) statement
	// walker deletes old marks without an index by age; nil where only expire deletes.
	walker walker
	// save stores a result for a mark that exists and has none, and returns its id, or counts it.
	save func(e entry, result []byte) statement
	// weakest is the isolation level for statements that must see others' commits at once.
	weakest sql.IsolationLevel
	// kind counts tables of the name that another Retention has made; empty where there is only one
	// kind.
	kind string
	// generation is the number of the generation that insert, load and save are for; zero where
	// there are no generations.
	generation int64
	// written counts the rows of an entry that this transaction has written; nil where the guard is
	// a savepoint.
	written func(e entry) statement
	// guard detects transactions that end without their owner's knowledge.
	guard txGuard
	// begin begins a transaction in the dialect's own way; nil where guard decides how.
	begin func(ctx context.Context, db *sql.DB, opts *sql.TxOptions) (transaction, error)
	// impatient is text that the probe writes in front of an INSERT to bound its wait. It is empty
	// where tests on real servers have shown that an INSERT waits.
	impatient string
	// bound bounds how long a transaction waits for locks; nil where the connection decides that.
	bound bounder
}

// saltBits of a stamp tell its statement apart from others of the same millisecond. The other bits
// are that millisecond, by the database's clock; they last until the year 2248.
const saltBits = 20

// An index on stamps has them in steps of 1024 ms: equal entries share one posting list, which
// takes a quarter of the space.
const (
	stampShift = "30"
	stampTick  = 1024 * time.Millisecond
)

var dialects = map[Dialect]func(tableName, time.Duration) *statements{Postgres: newPostgres,
	SQLite: newSQLite, MySQL: newMySQL, dialect.SQLServer: newSQLServer}

// forever is recorded for a window of zero: the longest that a time.Duration can hold, 292 years.
// So the longest of several windows is always the greatest number.
const forever = int64(1<<63-1) / int64(time.Millisecond)

// windowMillis rounds up: a mark may live longer than the window, but not shorter.
func windowMillis(window time.Duration) int64 {
	if window == 0 {
		return forever
	}
	return ceil(window, time.Millisecond)
}

func windowText(window time.Duration) string { return strconv.FormatInt(windowMillis(window), 10) }

func ceil(d, unit time.Duration) int64 { return int64((d-1)/unit) + 1 }
