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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/internal/sqlscript"
)

func mysqlError(n uint16) error { return sqlscript.NewMySQLError(n) }

var (
	mysqlID    = regexp.MustCompile(`x'([0-9a-f]{32})'`)
	mysqlOwner = regexp.MustCompile(`x'[0-9a-f]{32}', ([0-9]+),`)
)

// mysqlIDs returns the ids in a statement, in their order.
func mysqlIDs(t *testing.T, text string) (ids [][]byte) {
	t.Helper()
	for _, found := range mysqlID.FindAllStringSubmatch(text, -1) {
		id, err := hex.DecodeString(found[1])
		require.NoError(t, err)
		ids = append(ids, id)
	}
	return ids
}

// mysqlTable is a table that remembers the owner of each id.
type mysqlTable struct {
	t     *testing.T
	owner map[string]int64
}

// insert is a step that adds new ids and counts them. load returns the rows that are asked for.
func (m *mysqlTable) insert() Step {
	return Step{Like: `INSERT INTO`, Exec: func(text string) int64 {
		owner, err := strconv.ParseInt(mysqlOwner.FindStringSubmatch(text)[1], 10, 64)
		require.NoError(m.t, err)
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

func (m *mysqlTable) load() Step {
	return Step{Like: `LOCK IN SHARE MODE`, Text: func(text string) (rows [][]sqldriver.Value) {
		for _, id := range mysqlIDs(m.t, text) {
			if owner, found := m.owner[string(id)]; found {
				row := []sqldriver.Value{id, owner, nil, int64(1000), int64(4000), nil}
				rows = append(rows, row[:5+strings.Count(text, "r.result")])
			}
		}
		return rows
	}}
}

// results returns a result for each id. The ids must be those of keys.
func (m *mysqlTable) results(locked bool, keys ...string) Step {
	return Step{Like: `SELECT r.id, r.result`, Text: func(text string) (rows [][]sqldriver.Value) {
		assert.Equal(m.t, locked, strings.HasSuffix(text, `LOCK IN SHARE MODE`),
			"want locks: %v; %s", locked, text)
		asked := mysqlIDs(m.t, text)
		for _, id := range asked {
			rows = append(rows, []sqldriver.Value{id, []byte("result")})
		}
		marks := newMarks(m.t, MySQL)
		for _, key := range keys {
			e, err := marks.entry(key, nil)
			require.NoError(m.t, err)
			assert.Len(m.t, asked, len(keys))
			assert.True(m.t, slices.ContainsFunc(asked, func(id []byte) bool {
				return string(id) == string(e.id[:])
			}), "%v", asked)
		}
		return rows
	}}
}

func newMySQLTable(t *testing.T, m *Ledger, done ...string) *mysqlTable {
	table := &mysqlTable{t: t, owner: map[string]int64{}}
	for _, key := range done {
		e, err := m.entry(key, nil)
		require.NoError(t, err)
		table.owner[string(e.id[:])] = 42
	}
	return table
}

func isOpen() []Step { return []Step{{Query: setOpen}, {Query: releaseOpen}} }

func TestMySQLMarkTx(t *testing.T) {
	m := newMarks(t, MySQL)
	failing := func(n uint16) []Step {
		return append(isOpen(), Step{Like: `INSERT INTO`, Err: mysqlError(n)})
	}
	tests := map[string]struct {
		steps   []Step
		outcome driver.Outcome
		field   string
		err     error
		retry   bool
	}{
		"first": {steps: append(isOpen(), newMySQLTable(t, m).insert()),
			outcome: dedup.Acquired},
		"duplicate": {steps: append(isOpen(), newMySQLTable(t, m, testKey).insert(),
			newMySQLTable(t, m, testKey).load()), outcome: dedup.Duplicate},
		// Prevents: a mark is committed without its effect.
		"no transaction": {steps: []Step{{Query: setOpen},
			{Query: releaseOpen, Err: mysqlError(1305)}}, field: "tx"},
		"connection lost": {steps: []Step{{Query: setOpen, Err: sqldriver.ErrBadConn}},
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
			assert.Equal(t, tt.outcome, mark.Outcome)
			assert.False(t, tt.err != nil && !errors.Is(err, tt.err), "%v", err)
			assert.Equal(t, tt.outcome == dedup.Acquired || tt.outcome == dedup.Duplicate,
				err == nil)
			var input *dedup.InputError
			require.Equal(t, tt.field != "", errors.As(err, &input))
			assert.False(t, input != nil && input.Field != tt.field, "%v", tt.field)
			assert.Equal(t, tt.retry, Retryable(err), "Retryable(%v) = %v", err, !tt.retry)
		})
	}
}

// Some keys of a batch are taken. The owner column shows which, even if the other transaction is
// one of this program.
func TestMySQLMarkBatchTx(t *testing.T) {
	m := newMarks(t, MySQL)
	table := newMySQLTable(t, m, "b", "d")
	tx, _ := beginScript(t, append(isOpen(), table.insert(), table.load(),
		table.results(true, "b", "d"))...)
	marks, err := m.MarkBatchTx(t.Context(),
		tx, []dedup.Request{{Key: "a"}, {Key: "b"}, {Key: "c"}, {Key: "d"}, {Key: "a"}, {Key: ""}})
	require.NoError(t, err)
	want := []driver.Outcome{dedup.Acquired, dedup.Duplicate, dedup.Acquired, dedup.Duplicate,
		dedup.Duplicate, dedup.Unknown}
	for i, mark := range marks {
		assert.Equal(t, want[i], mark.Outcome, "item %d", i)
		assert.Equal(t, mark.Result != nil, i == 1 || i == 3, "item %d", i)
	}
}

// Prevents: a transaction looks for results that do not exist, and then continues. That would lock
// gaps into which other transactions want to insert.
func TestMySQLDoBatchReadsResultsLast(t *testing.T) {
	m := newMarks(t, MySQL)
	table := newMySQLTable(t, m, "b")
	steps := guarded(table.insert(), table.load(), Step{Query: "effect"}, table.results(false, "b"),
		Step{Query: releaseGuard}, Step{Query: autocommitBack})
	db, _ := openScript(t, steps...)
	marks, err := m.DoBatch(t.Context(), db, []string{"a", "b", "b"},
		func(ctx context.Context, tx *sql.Tx, _ []int) error {
			_, err := tx.ExecContext(ctx, "effect")
			return err
		})
	require.NoError(t, err)
	require.True(t, marks[0].First(), "DoBatch = %v", marks)
	require.Nil(t, marks[0].Result, "DoBatch = %v", marks)
	require.Equal(t, "result", string(marks[1].Result), "DoBatch = %v", marks)
	assert.Equal(t, "result", string(marks[2].Result), "DoBatch = %v", marks)
}

// Prevents: an effect uses LOCK TABLES and so commits half of itself. Then the results of
// duplicates cannot be read (1100), and the half effect is taken for done.
func TestMySQLResultsAfterHalfAnEffect(t *testing.T) {
	m := newMarks(t, MySQL)
	refused, back := Step{Like: `SELECT r.id, r.result`, Err: mysqlError(1100)},
		Step{Query: autocommitBack}
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
				table := newMySQLTable(t, m, "b") // it keeps what was rolled back
				steps := guarded(table.insert(), table.load(), refused,
					Step{Query: undoGuard, Err: tt.undo}, back)
				if tt.again {
					steps = append(steps, guarded(table.insert(), table.load(), back)...)
				}
				db, s := openScript(t, steps...)
				_, err := m.DoBatch(t.Context(), db, []string{"a", "b"},
					func(context.Context, *sql.Tx, []int) error { return nil })
				assert.Error(t, err)
				assert.Equal(t, tt.permanent, dedup.IsPermanent(err))
				assert.Equal(t, tt.permanent, errors.Is(err, errCommittedItself))
				assert.Zero(t, s.Committed)
			})
		})
	}
}

func TestMySQLBatchIsSorted(t *testing.T) {
	m := newMarks(t, MySQL)
	var text string
	tx, _ := beginScript(t, append(isOpen(),
		Step{Like: `INSERT INTO`, Exec: func(asked string) int64 { text = asked; return 3 }})...)
	_, err := m.MarkBatchTx(t.Context(),
		tx, []dedup.Request{{Key: "a"}, {Key: "b"}, {Key: "c"}})
	require.NoError(t, err)
	ids := mysqlIDs(t, text)
	assert.Len(t, ids, 3, "ids are not 3 in ascending order")
	assert.True(t, slices.IsSortedFunc(ids, slices.Compare[[]byte]),
		"ids are not 3 in ascending order")
}

// guarded adds the statements by which Do guards a transaction, up to the end of the effect.
func guarded(steps ...Step) []Step {
	return slices.Concat([]Step{{Query: autocommitOff}, {Query: setGuard}}, steps)
}

// If the server has rolled a transaction back without an error, it is not committed, and runs
// again.
func TestMySQLDo(t *testing.T) {
	m := newMarks(t, MySQL)
	insert := Step{Like: `INSERT INTO`, Exec: func(string) int64 { return 1 }}
	back := Step{Query: autocommitBack}
	committed := append(guarded(insert), Step{Query: releaseGuard}, back)
	tests := map[string]struct {
		steps     []Step
		effect    []error
		committed int
		err       error
	}{
		"first": {steps: committed, effect: []error{nil}, committed: 1},
		"rolled back by itself": {steps: slices.Concat(guarded(insert),
			[]Step{{Query: releaseGuard, Err: mysqlError(1305)}, back}, committed),
			effect: []error{nil, nil}, committed: 1},
		"deadlock in the effect": {steps: slices.Concat(guarded(insert, back), committed),
			effect: []error{mysqlError(1213), nil}, committed: 1},
		"guard is not set": {steps: slices.Concat([]Step{{Query: autocommitOff},
			{Query: setGuard, Err: mysqlError(1213)}, back}, committed), effect: []error{nil},
			committed: 1},
		"connection lost at once": {steps: slices.Concat([]Step{{Query: autocommitOff,
			Err: sqldriver.ErrBadConn}}, committed), effect: []error{nil}, committed: 1},
		"lock wait timeout": {steps: guarded(Step{Like: `INSERT INTO`, Err: mysqlError(1205)},
			back), err: dedup.ErrInFlight},
		"release fails otherwise": {steps: append(guarded(insert),
			Step{Query: releaseGuard, Err: mysqlError(1064)}, back), effect: []error{nil},
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
				require.Equal(t, tt.err == nil, err == nil)
				assert.False(t, tt.err != nil && !errors.Is(err, tt.err) &&
					!strings.Contains(err.Error(), tt.err.Error()), "%v", err)
				assert.Equal(t, tt.committed, s.Committed)
				assert.Empty(t, effects)
			})
		})
	}
}

// Prevents: a canceled call commits half an effect and its mark. Switching autocommit on again
// commits an open transaction. database/sql rolls back by itself when the context ends, but reports
// that before it has done so.
func TestMySQLDoCancelledRollsBackFirst(t *testing.T) {
	m := newMarks(t, MySQL)
	insert := Step{Like: `INSERT INTO`, Exec: func(string) int64 { return 1 }}
	synctest.Test(t, func(t *testing.T) {
		db, s := openScript(t, guarded(insert, Step{Query: rollbackNow},
			Step{Query: autocommitBack})...)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := m.Do(ctx, db, testKey, func(ctx context.Context, _ *sql.Tx) error {
			cancel()
			synctest.Wait() // until database/sql has noticed
			return ctx.Err()
		})
		assert.ErrorIs(t, err, context.Canceled)
		assert.Zero(t, s.Committed)
	})
}

// If autocommit cannot be restored, the session is closed and not returned to its pool.
func TestMySQLDoDiscardsItsSession(t *testing.T) {
	m := newMarks(t, MySQL)
	insert := Step{Like: `INSERT INTO`, Exec: func(string) int64 { return 1 }}
	db, _ := openScript(t, append(guarded(insert), Step{Query: releaseGuard},
		Step{Query: autocommitBack, Err: mysqlError(1064)})...)
	_, err := m.Do(t.Context(), db, testKey, nothing)
	require.NoError(t, err)
	assert.Zero(t, db.Stats().OpenConnections, "connections are left")
}

func TestMySQLCheck(t *testing.T) {
	m := newMarks(t, MySQL)
	window := Step{Query: m.dialect.window, Rows: func([]any) [][]sqldriver.Value {
		return [][]sqldriver.Value{{int64(3_600_000)}}
	}}
	insert := func(n int64) Step {
		return Step{Like: `INSERT INTO`, Exec: func(string) int64 { return n }}
	}
	gone := Step{Like: `SELECT m.id, m.owner`}
	left := gone
	left.Text = func(text string) [][]sqldriver.Value {
		return [][]sqldriver.Value{{mysqlIDs(t, text)[0], int64(1), nil, int64(1), int64(1), nil}}
	}
	for name, tt := range map[string]struct {
		steps []Step
		fails string
	}{
		"sound":            {[]Step{gone, window, insert(1), insert(0), gone}, ""},
		"clientFoundRows":  {[]Step{gone, window, insert(1), insert(1)}, "clientFoundRows"},
		"nothing inserted": {[]Step{gone, window, insert(0)}, "changed 0, not 1"},
		"no transactions":  {[]Step{gone, window, insert(1), insert(0), left}, "InnoDB"},
		"another form":     {[]Step{{Like: `SELECT m.id, m.owner`, Err: mysqlError(1054)}}, "form"},
		"no window":        {[]Step{gone, {Query: m.dialect.window}}, "call Migrate"},
		"a shorter window": {[]Step{gone,
			{Query: m.dialect.window, Rows: func([]any) [][]sqldriver.Value {
				return [][]sqldriver.Value{{int64(1)}}
			}}}, "call Migrate"},
	} {
		t.Run(name, func(t *testing.T) {
			one := func([]any) [][]sqldriver.Value { return [][]sqldriver.Value{{int64(1)}} }
			level := []Step{{Query: m.dialect.kind, Rows: number(0)},
				{Like: "information_schema.tables", Rows: one},
				{Like: "SELECT version", Rows: number(3)}}
			db, s := openScript(t, append(level, tt.steps...)...)
			err := m.Check(t.Context(), db)
			require.Equal(t, tt.fails == "", err == nil)
			assert.False(t, err != nil && !strings.Contains(err.Error(), tt.fails), "%v", err)
			assert.Zero(t, s.Committed)
		})
	}
}

// Prevents: an effect has committed half of itself, and its try then ends before COMMIT with an
// error that is retried. The half effect is taken for done.
func TestMySQLHalfAnEffectIsNoDuplicate(t *testing.T) {
	m := newMarks(t, MySQL)
	table := newMySQLTable(t, m) // it keeps what was rolled back
	back := Step{Query: autocommitBack}
	synctest.Test(t, func(t *testing.T) {
		table.t = t
		db, _ := openScript(t, slices.Concat(guarded(table.insert(), back),
			guarded(table.insert(), table.load(), back))...)
		mark, err := m.Do(t.Context(), db, testKey, func(context.Context, *sql.Tx) error {
			return mysqlError(1213)
		})
		assert.ErrorIs(t, err, errCommittedItself, "Do = %v", mark.Outcome)
		assert.True(t, dedup.IsPermanent(err), "Do = %v", mark.Outcome)
	})
}
