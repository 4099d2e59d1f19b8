package sqladapter

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"encoding/hex"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// MySQLError is shaped as that of go-sql-driver.
type MySQLError struct {
	Number  uint16
	Message string
}

func (e *MySQLError) Error() string { return "server says " + strconv.Itoa(int(e.Number)) }

func mysqlError(n uint16) error { return &MySQLError{Number: n} }

var (
	mysqlID    = regexp.MustCompile(`x'([0-9a-f]{32})'`)
	mysqlOwner = regexp.MustCompile(`x'[0-9a-f]{32}', ([0-9]+),`)
)

// mysqlIDs are those that stand in a statement, in its order.
func mysqlIDs(t *testing.T, text string) (ids [][]byte) {
	t.Helper()
	for _, found := range mysqlID.FindAllStringSubmatch(text, -1) {
		id, err := hex.DecodeString(found[1])
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// mysqlTable plays a table: it knows who has inserted what.
type mysqlTable struct {
	t     *testing.T
	owner map[string]int64
}

// insert is a step that counts what is new; load returns what is asked for.
func (m *mysqlTable) insert() step {
	return step{like: `INSERT INTO`, exec: func(text string) int64 {
		owner, err := strconv.ParseInt(mysqlOwner.FindStringSubmatch(text)[1], 10, 64)
		if err != nil {
			m.t.Fatal(err)
		}
		var fresh int64
		for _, id := range mysqlIDs(m.t, text) {
			if _, found := m.owner[string(id)]; !found {
				m.owner[string(id)] = owner
				fresh++
			}
		}
		return fresh
	}}
}

func (m *mysqlTable) load() step {
	return step{like: `LOCK IN SHARE MODE`, text: func(text string) (rows [][]sqldriver.Value) {
		for _, id := range mysqlIDs(m.t, text) {
			if owner, found := m.owner[string(id)]; found {
				row := []sqldriver.Value{id, owner, nil, int64(1000), int64(4000), nil}
				rows = append(rows, row[:5+strings.Count(text, "r.result")])
			}
		}
		return rows
	}}
}

// results returns one for each id, which must be those of these keys.
func (m *mysqlTable) results(locked bool, keys ...string) step {
	return step{like: `SELECT r.id, r.result`, text: func(text string) (rows [][]sqldriver.Value) {
		if strings.HasSuffix(text, `LOCK IN SHARE MODE`) != locked {
			m.t.Errorf("want locks: %v; %s", locked, text)
		}
		asked := mysqlIDs(m.t, text)
		for _, id := range asked {
			rows = append(rows, []sqldriver.Value{id, []byte("result")})
		}
		marks := newMarks(m.t, MySQL)
		for _, key := range keys {
			e, err := marks.entry(key, nil)
			if err != nil || len(asked) != len(keys) ||
				!slices.ContainsFunc(asked, func(id []byte) bool {
					return string(id) == string(e.id[:])
				}) {
				m.t.Errorf("results of %x are read, want those of %q, %v", asked, keys, err)
			}
		}
		return rows
	}}
}

func newMySQLTable(t *testing.T, m *Ledger, done ...string) *mysqlTable {
	table := &mysqlTable{t: t, owner: map[string]int64{}}
	for _, key := range done {
		e, err := m.entry(key, nil)
		if err != nil {
			t.Fatal(err)
		}
		table.owner[string(e.id[:])] = 42
	}
	return table
}

func isOpen() []step { return []step{{query: setOpen}, {query: releaseOpen}} }

func TestMySQLMarkTx(t *testing.T) {
	m := newMarks(t, MySQL)
	failing := func(n uint16) []step {
		return append(isOpen(), step{like: `INSERT INTO`, err: mysqlError(n)})
	}
	tests := map[string]struct {
		steps   []step
		outcome driver.Outcome
		field   string
		err     error
		retry   bool
	}{
		"first": {steps: append(isOpen(), newMySQLTable(t, m).insert()),
			outcome: dedup.Acquired},
		"duplicate": {steps: append(isOpen(), newMySQLTable(t, m, testKey).insert(),
			newMySQLTable(t, m, testKey).load()), outcome: dedup.Duplicate},
		// Prevents: a mark that is committed by itself, before its effect.
		"no transaction": {steps: []step{{query: setOpen},
			{query: releaseOpen, err: mysqlError(1305)}}, field: "tx"},
		"connection lost": {steps: []step{{query: setOpen, err: sqldriver.ErrBadConn}},
			err: sqldriver.ErrBadConn, retry: true},
		"lock wait timeout": {steps: failing(1205), outcome: dedup.InFlight,
			err: dedup.ErrInFlight, retry: true},
		"deadlock":             {steps: failing(1213), retry: true},
		"snapshot has changed": {steps: failing(1020), retry: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tx, _ := beginScript(t, tt.steps...)
			mark, err := m.MarkTx(t.Context(), tx, testKey)
			if mark.Outcome != tt.outcome || tt.err != nil && !errors.Is(err, tt.err) ||
				(err == nil) != (tt.outcome == dedup.Acquired || tt.outcome == dedup.Duplicate) {
				t.Errorf("MarkTx = %v, %v; want %v, %v", mark.Outcome, err, tt.outcome, tt.err)
			}
			var input *dedup.InputError
			if errors.As(err, &input) != (tt.field != "") ||
				input != nil && input.Field != tt.field {
				t.Errorf("MarkTx = %v, want an InputError on %q", err, tt.field)
			}
			if Retryable(err) != tt.retry {
				t.Errorf("Retryable(%v) = %v", err, !tt.retry)
			}
		})
	}
}

// Of a batch in which some keys are taken, the owner tells the rest, also when the other
// transaction was one of this program.
func TestMySQLMarkBatchTx(t *testing.T) {
	m := newMarks(t, MySQL)
	table := newMySQLTable(t, m, "b", "d")
	tx, _ := beginScript(t, append(isOpen(), table.insert(), table.load(),
		table.results(true, "b", "d"))...)
	marks, err := m.MarkBatchTx(t.Context(),
		tx, []dedup.Request{{Key: "a"}, {Key: "b"}, {Key: "c"}, {Key: "d"}, {Key: "a"}, {Key: ""}})
	if err != nil {
		t.Fatal(err)
	}
	want := []driver.Outcome{dedup.Acquired, dedup.Duplicate, dedup.Acquired, dedup.Duplicate,
		dedup.Duplicate, dedup.Unknown}
	for i, mark := range marks {
		if theirs := i == 1 || i == 3; mark.Outcome != want[i] || theirs != (mark.Result != nil) {
			t.Errorf("item %d: %v with %q, want %v", i, mark.Outcome, mark.Result, want[i])
		}
	}
}

// Prevents: a look for results that are not there, in the midst of a transaction that goes on. It
// locks gaps in which others want to insert theirs.
func TestMySQLDoBatchReadsResultsLast(t *testing.T) {
	m := newMarks(t, MySQL)
	table := newMySQLTable(t, m, "b")
	steps := guarded(table.insert(), table.load(), step{query: "effect"}, table.results(false, "b"),
		step{query: releaseGuard}, step{query: autocommitBack})
	db, _ := openScript(t, steps...)
	marks, err := m.DoBatch(t.Context(), db, []string{"a", "b", "b"},
		func(ctx context.Context, tx *sql.Tx, _ []int) error {
			_, err := tx.ExecContext(ctx, "effect")
			return err
		})
	if err != nil || !marks[0].First() || marks[0].Result != nil ||
		string(marks[1].Result) != "result" || string(marks[2].Result) != "result" {
		t.Errorf("DoBatch = %v, %v", marks, err)
	}
}

// Prevents: half an effect that has committed itself, by LOCK TABLES, is taken for done, when it is
// the results of duplicates that cannot be read after it (1100).
func TestMySQLResultsAfterHalfAnEffect(t *testing.T) {
	m := newMarks(t, MySQL)
	refused, back := step{like: `SELECT r.id, r.result`, err: mysqlError(1100)},
		step{query: autocommitBack}
	for name, tt := range map[string]struct {
		undo      error
		again     bool
		permanent bool
	}{
		"the transaction is there": {},
		"it has ended":             {undo: mysqlError(1305), again: true, permanent: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := newMySQLTable(t, m, "b") // keeps what was rolled back
				steps := guarded(table.insert(), table.load(), refused,
					step{query: undoGuard, err: tt.undo}, back)
				if tt.again {
					steps = append(steps, guarded(table.insert(), table.load(), back)...)
				}
				db, s := openScript(t, steps...)
				_, err := m.DoBatch(t.Context(), db, []string{"a", "b"},
					func(context.Context, *sql.Tx, []int) error { return nil })
				if err == nil || dedup.IsPermanent(err) != tt.permanent ||
					errors.Is(err, errCommittedItself) != tt.permanent || s.committed != 0 {
					t.Errorf("DoBatch = %v", err)
				}
			})
		})
	}
}

func TestMySQLBatchIsSorted(t *testing.T) {
	m := newMarks(t, MySQL)
	var text string
	tx, _ := beginScript(t, append(isOpen(),
		step{like: `INSERT INTO`, exec: func(asked string) int64 { text = asked; return 3 }})...)
	if _, err := m.MarkBatchTx(t.Context(),
		tx, []dedup.Request{{Key: "a"}, {Key: "b"}, {Key: "c"}}); err != nil {
		t.Fatal(err)
	}
	ids := mysqlIDs(t, text)
	if len(ids) != 3 || !slices.IsSortedFunc(ids, slices.Compare[[]byte]) {
		t.Errorf("ids are not 3 in ascending order: %x", ids)
	}
}

// guarded is what Do runs around a transaction, up to the end of the effect.
func guarded(steps ...step) []step {
	return slices.Concat([]step{{query: autocommitOff}, {query: setGuard}}, steps)
}

// A transaction that the server has rolled back behind the effect's back is never
// committed, and is run again.
func TestMySQLDo(t *testing.T) {
	m := newMarks(t, MySQL)
	insert := step{like: `INSERT INTO`, exec: func(string) int64 { return 1 }}
	back := step{query: autocommitBack}
	committed := append(guarded(insert), step{query: releaseGuard}, back)
	tests := map[string]struct {
		steps     []step
		effect    []error
		committed int
		err       error
	}{
		"first": {steps: committed, effect: []error{nil}, committed: 1},
		"rolled back by itself": {steps: slices.Concat(guarded(insert),
			[]step{{query: releaseGuard, err: mysqlError(1305)}, back}, committed),
			effect: []error{nil, nil}, committed: 1},
		"deadlock in the effect": {steps: slices.Concat(guarded(insert, back), committed),
			effect: []error{mysqlError(1213), nil}, committed: 1},
		"guard is not set": {steps: slices.Concat([]step{{query: autocommitOff},
			{query: setGuard, err: mysqlError(1213)}, back}, committed), effect: []error{nil},
			committed: 1},
		"connection lost at once": {steps: slices.Concat([]step{{query: autocommitOff,
			err: sqldriver.ErrBadConn}}, committed), effect: []error{nil}, committed: 1},
		"lock wait timeout": {steps: guarded(step{like: `INSERT INTO`, err: mysqlError(1205)},
			back), err: dedup.ErrInFlight},
		"release fails otherwise": {steps: append(guarded(insert),
			step{query: releaseGuard, err: mysqlError(1064)}, back), effect: []error{nil},
			err: mysqlError(1064)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, s := openScript(t, tt.steps...)
				effects := tt.effect
				_, err := m.Do(t.Context(), db, testKey, func(context.Context, *sql.Tx) error {
					return shift(&effects)
				})
				if (err == nil) != (tt.err == nil) ||
					tt.err != nil && !errors.Is(err, tt.err) &&
						!strings.Contains(err.Error(), tt.err.Error()) {
					t.Errorf("Do = %v, want %v", err, tt.err)
				}
				if s.committed != tt.committed || len(effects) > 0 {
					t.Errorf("%d commits, want %d; %d effects did not run", s.committed,
						tt.committed, len(effects))
				}
			})
		})
	}
}

// Prevents: a call that is cancelled commits half an effect, and its mark. Autocommit that is
// switched on again commits what is open, and database/sql, which rolls back by itself when the
// context ends, says that it is done before it is.
func TestMySQLDoCancelledRollsBackFirst(t *testing.T) {
	m := newMarks(t, MySQL)
	insert := step{like: `INSERT INTO`, exec: func(string) int64 { return 1 }}
	synctest.Test(t, func(t *testing.T) {
		db, s := openScript(t, guarded(insert, step{query: rollbackNow},
			step{query: autocommitBack})...)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := m.Do(ctx, db, testKey, func(ctx context.Context, _ *sql.Tx) error {
			cancel()
			synctest.Wait() // for database/sql
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || s.committed != 0 {
			t.Errorf("Do = %v, with %d commits", err, s.committed)
		}
	})
}

// A session whose autocommit could not be restored does not go back to its pool.
func TestMySQLDoDiscardsItsSession(t *testing.T) {
	m := newMarks(t, MySQL)
	insert := step{like: `INSERT INTO`, exec: func(string) int64 { return 1 }}
	db, _ := openScript(t, append(guarded(insert), step{query: releaseGuard},
		step{query: autocommitBack, err: mysqlError(1064)})...)
	if _, err := m.Do(t.Context(), db, testKey, nothing); err != nil {
		t.Fatal(err)
	}
	if n := db.Stats().OpenConnections; n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

func TestMySQLCheck(t *testing.T) {
	m := newMarks(t, MySQL)
	window := step{query: m.dialect.window, rows: func([]any) [][]sqldriver.Value {
		return [][]sqldriver.Value{{int64(3_600_000)}}
	}}
	insert := func(n int64) step {
		return step{like: `INSERT INTO`, exec: func(string) int64 { return n }}
	}
	gone := step{like: `SELECT m.id, m.owner`}
	left := gone
	left.text = func(text string) [][]sqldriver.Value {
		return [][]sqldriver.Value{{mysqlIDs(t, text)[0], int64(1), nil, int64(1), int64(1), nil}}
	}
	for name, tt := range map[string]struct {
		steps []step
		fails string
	}{
		"sound":            {[]step{gone, window, insert(1), insert(0), gone}, ""},
		"clientFoundRows":  {[]step{gone, window, insert(1), insert(1)}, "clientFoundRows"},
		"nothing inserted": {[]step{gone, window, insert(0)}, "changed 0, not 1"},
		"no transactions":  {[]step{gone, window, insert(1), insert(0), left}, "InnoDB"},
		"another form":     {[]step{{like: `SELECT m.id, m.owner`, err: mysqlError(1054)}}, "form"},
		"no window":        {[]step{gone, {query: m.dialect.window}}, "call Migrate"},
		"a shorter window": {[]step{gone,
			{query: m.dialect.window, rows: func([]any) [][]sqldriver.Value {
				return [][]sqldriver.Value{{int64(1)}}
			}}}, "call Migrate"},
	} {
		t.Run(name, func(t *testing.T) {
			one := func([]any) [][]sqldriver.Value { return [][]sqldriver.Value{{int64(1)}} }
			level := []step{{query: m.dialect.kind, rows: number(0)},
				{like: "information_schema.tables", rows: one}, {like: "SELECT version", rows: one}}
			db, s := openScript(t, append(level, tt.steps...)...)
			err := m.Check(t.Context(), db)
			if (err == nil) != (tt.fails == "") ||
				err != nil && !strings.Contains(err.Error(), tt.fails) || s.committed != 0 {
				t.Errorf("Check = %v, want %q", err, tt.fails)
			}
		})
	}
}

// Prevents: half an effect that has committed itself is taken for done, when the error that ended
// its try came before COMMIT and was one that passes.
func TestMySQLHalfAnEffectIsNoDuplicate(t *testing.T) {
	m := newMarks(t, MySQL)
	table := newMySQLTable(t, m) // keeps what was rolled back
	back := step{query: autocommitBack}
	synctest.Test(t, func(t *testing.T) {
		table.t = t
		db, _ := openScript(t, slices.Concat(guarded(table.insert(), back),
			guarded(table.insert(), table.load(), back))...)
		mark, err := m.Do(t.Context(), db, testKey, func(context.Context, *sql.Tx) error {
			return mysqlError(1213)
		})
		if !errors.Is(err, errCommittedItself) || !dedup.IsPermanent(err) {
			t.Errorf("Do = %v, %v", mark.Outcome, err)
		}
	})
}
