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

// statement is the text of one, and its parameters.
type statement struct {
	text string
	args []any
}

// statements holds the statements for one table.
type statements struct {
	// form reads the columns of the table of marks, and no row.
	form string
	// raise puts a window on record unless that is longer.
	raise string
	// texts are what the migrations have besides the names of the table.
	texts map[string]string
	// chunk is how many rows a statement takes at once.
	chunk int
	// insert the rows whose ids are not taken, and return id and stamp of those.
	insert func(es []entry, salt int64) statement
	// counts says that insert returns no rows, but how many it has inserted. Which ones is
	// told by the stamp, which is then the salt itself.
	counts bool
	// salt is how many random bits a stamp has.
	salt int
	// load the rows of these ids as they are committed now: id, stamp, fingerprint, when it
	// was made and the clock, both in milliseconds, and the result.
	load func(es []entry) statement
	// apart is load without the results, of the marks of a batch, and results reads those of
	// duplicates: id and result, of those that have one; locked as load reads, as they are
	// committed now. nil where load will do for a batch.
	apart   func(es []entry) statement
	results func(es []entry, locked bool) statement
	// earlier is load for those that were there before the table of insert was; nil where load
	// finds them, too.
	earlier func(es []entry) statement
	// peek is load for those who wait for nobody.
	peek func(es []entry) statement
	// ids reads the form of the ids on record; empty where there is one form.
	ids string
	// window reads the one on record, in milliseconds; setWindow takes it.
	window, setWindow string
	// clock reads the database's, in milliseconds.
	clock string
	// tick is the unit in which expire counts.
	tick time.Duration
	// expire returns the ids of the rows that are at least ticks older than the newest: ticks,
	// limit. It may delete them by itself; the statements of forget do the rest.
	expire string
	forget func(es []entry) []string
	// takeBack deletes marks that this transaction has made; nil where there is no previous table.
	takeBack func(es []entry) statement
	// walker deletes old marks without an index by age; nil where expire alone does.
	walker walker
	// save a result for a mark that is there and has none, and return its id, or count it.
	save func(e entry, result []byte) statement
	// weakest is the isolation level for what is to see others' commits at once.
	weakest sql.IsolationLevel
	// kind counts tables of the name that another Retention has made; empty where there is one
	// kind.
	kind string
	// generation that insert, load and save are for; zero where there are none.
	generation int64
	// written counts the rows of an entry that this transaction has written; nil where a guard goes
	// by a savepoint.
	written func(e entry) statement
	// guard is against transactions that end without their owner's knowledge.
	guard txGuard
	// begin a transaction in the dialect's own way; nil where guard tells the way.
	begin func(ctx context.Context, db *sql.DB, opts *sql.TxOptions) (transaction, error)
	// impatient is what bounds the wait of the insert that follows it, for the probe; empty where
	// that insert has been seen to wait.
	impatient string
	// bound bounds the waits of a transaction; nil where that is up to the connection.
	bound bounder
}

// saltBits of a stamp tell its statement apart from others of the same millisecond. The
// rest is that millisecond, by the database's clock: until the year 2248.
const saltBits = 20

// Where stamps are indexed, it is in steps of 1024 ms: equal entries share one posting list, which
// is a quarter of the space.
const (
	stampShift = "30"
	stampTick  = 1024 * time.Millisecond
)

var dialects = map[Dialect]func(tableName, time.Duration) *statements{Postgres: newPostgres,
	SQLite: newSQLite, MySQL: newMySQL, dialect.SQLServer: newSQLServer}

// forever is the window of zero on record: the longest that a time.Duration can tell, 292
// years. So the longest of several windows is the greatest number.
const forever = int64(1<<63-1) / int64(time.Millisecond)

// windowMillis rounds up: a mark may live longer than the window, and not shorter.
func windowMillis(window time.Duration) int64 {
	if window == 0 {
		return forever
	}
	return ceil(window, time.Millisecond)
}

func windowText(window time.Duration) string { return strconv.FormatInt(windowMillis(window), 10) }

func ceil(d, unit time.Duration) int64 { return int64((d-1)/unit) + 1 }
