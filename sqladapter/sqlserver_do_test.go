package sqladapter

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"io"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// begunAs answers with the session's settings when a transaction has begun.
func begunAs(aborts, depth, id int64) Step {
	return Step{Query: serverBegun, Rows: func([]any) [][]sqldriver.Value {
		return [][]sqldriver.Value{{aborts, depth, id}}
	}}
}

// still answers whether the transaction is the one with this id.
func still(id int64) Step {
	return Step{Query: serverSame, Rows: func(args []any) [][]sqldriver.Value {
		var same int64
		if args[0] == id {
			same = 1
		}
		return [][]sqldriver.Value{{same}}
	}}
}

func TestSQLServerDo(t *testing.T) {
	m := newMarks(t, dialect.SQLServer)
	begun, back := begunAs(0, 1, 7), Step{Query: serverBack + `OFF`}
	insert := Step{Like: `INSERT INTO [onceward_marks] (`, Affected: 1}
	try := func(steps ...Step) []Step {
		return slices.Concat([]Step{begun, insert}, steps, []Step{back})
	}
	done := try(still(7))
	table := newServerTable(t, m, serverRow{})
	tests := map[string]struct {
		steps     []Step
		effect    []error
		commits   []error
		outcome   driver.Outcome
		committed int
		err       error
	}{
		"first": {steps: done, effect: []error{nil}, outcome: dedup.Acquired, committed: 1},
		"duplicate": {steps: []Step{begun, refused(2627),
			newServerTable(t, m, serverRow{owner: 42}, testKey).load(), back},
			outcome: dedup.Duplicate},
		// XACT_ABORT is afterwards as it was before.
		"it was ON": {steps: []Step{begunAs(16384, 1, 7), insert, still(7),
			{Query: serverBack + `ON`}}, effect: []error{nil}, outcome: dedup.Acquired,
			committed: 1},
		"deadlock, then not": {
			steps: slices.Concat([]Step{begun, refused(1205), back}, done), effect: []error{nil},
			outcome: dedup.Acquired, committed: 1,
		},
		"deadlock in the effect": {steps: slices.Concat(try(), done),
			effect: []error{serverError(1205), nil}, outcome: dedup.Acquired, committed: 1},
		// The effect has ignored the error that ended its transaction.
		"another transaction": {steps: slices.Concat(try(still(8)), done),
			effect: []error{nil, nil}, outcome: dedup.Acquired, committed: 1},
		"ended, says driver": {
			steps:  slices.Concat(try(Step{Query: serverSame, Err: serverError(0)}), done),
			effect: []error{nil, nil}, outcome: dedup.Acquired, committed: 1,
		},
		"always another": {
			steps: slices.Repeat(try(still(8)), maxTries), effect: make([]error, maxTries),
			err: errRolledBack,
		},
		"effect fails": {steps: try(), effect: []error{serverError(547)},
			err: serverError(547)},
		"lock timeout": {steps: []Step{begun, refused(1222), back}, outcome: dedup.InFlight,
			err: dedup.ErrInFlight},
		"a transaction in": {steps: []Step{begunAs(0, 2, 7), back}, err: errInAnother},
		"not begun": {steps: []Step{{Query: serverBegun, Err: serverError(102)}, back},
			err: serverError(102)},
		"lost before": {steps: slices.Concat([]Step{{Query: serverBegun,
			Err: sqldriver.ErrBadConn}, back}, done), effect: []error{nil}, outcome: dedup.Acquired,
			committed: 1},
		"lost COMMIT that happened": {
			steps: []Step{begun, table.insert(), still(7), back, begun, table.insert(),
				table.load(), back},
			effect: []error{nil}, commits: []error{io.ErrUnexpectedEOF}, outcome: dedup.Duplicate,
			committed: 1,
		},
		"lost COMMIT that did not": {
			// database/sql has dropped the session
			steps:  slices.Concat([]Step{begun, insert, still(7)}, done),
			effect: []error{nil, nil}, commits: []error{sqldriver.ErrBadConn},
			outcome:   dedup.Acquired,
			committed: 2,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, s := openScript(t, tt.steps...)
				s.Commits = tt.commits
				effects := tt.effect
				mark, err := m.Do(t.Context(), db, testKey,
					func(_ context.Context, tx *sql.Tx) error {
						assert.NotNil(t, tx, "no transaction")
						return shift(&effects)
					})
				assert.Equal(t, tt.err == nil, err == nil)
				assert.ErrorIs(t, err, tt.err)
				assert.Equal(t, tt.outcome, mark.Outcome)
				assert.Equal(t, tt.committed, s.Committed)
				assert.Empty(t, effects)
				assert.Zero(t, db.Stats().InUse, "sessions were not given back")
			})
		})
	}
}

// If its options cannot be restored, a session is closed and not returned to its pool.
func TestSQLServerDoDiscardsItsSession(t *testing.T) {
	m := newMarks(t, dialect.SQLServer)
	db, _ := openScript(t, begunAs(0, 1, 7), Step{Like: `INSERT INTO`, Affected: 1}, still(7),
		Step{Query: serverBack + `OFF`, Err: serverError(102)})
	_, err := m.Do(t.Context(), db, testKey, nothing)
	require.NoError(t, err)
	assert.Zero(t, db.Stats().OpenConnections, "connections are left")
}

func TestSQLServerConfirm(t *testing.T) {
	m := newMarks(t, dialect.SQLServer)
	e, err := m.entry(testKey, nil)
	require.NoError(t, err)
	mine := Mark{Outcome: dedup.Acquired, id: e.id, stamp: 42}
	begun, back := begunAs(0, 1, 7), Step{Query: serverBack + `OFF`}
	of := func(owner int64, keys ...string) *serverTable {
		return newServerTable(t, m, serverRow{owner: owner}, keys...)
	}
	for name, tt := range map[string]struct {
		steps []Step
		want  CommitStatus
		err   error
	}{
		"ours": {[]Step{of(42, testKey).insert(), of(42, testKey).load()}, Committed, nil},
		"another's": {[]Step{of(41, testKey).insert(), of(41, testKey).load()},
			CommittedByAnother, nil},
		"nobody's": {[]Step{of(0).insert()}, NotCommitted, nil},
		// The server has not noticed yet that the connection is broken.
		"not ended": {[]Step{refused(1222)}, Undecided, dedup.ErrInFlight},
	} {
		t.Run(name, func(t *testing.T) {
			db, s := openScript(t, slices.Concat([]Step{begun}, tt.steps, []Step{back})...)
			got, err := m.Confirm(t.Context(), db, testKey, mine)
			assert.Equal(t, tt.want, got)
			assert.ErrorIs(t, err, tt.err)
			assert.Zero(t, s.Committed)
			assert.Equal(t, 1, s.RolledBack)
		})
	}
}

// Prevents: an effect has committed half of itself and is taken for done. The driver may report
// that before COMMIT, with the next statement.
func TestSQLServerHalfAnEffectIsNoDuplicate(t *testing.T) {
	m := newMarks(t, dialect.SQLServer)
	begun, back := begunAs(0, 1, 7), Step{Query: serverBack + `OFF`}
	for name, tt := range map[string]struct {
		effect error
		check  []Step
	}{
		"a statement that follows": {serverError(0), nil},
		"deadlock afterwards":      {serverError(1205), nil},
		"nothing follows":          {nil, []Step{{Query: serverSame, Err: serverError(0)}}},
		"another has begun":        {nil, []Step{still(8)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := newServerTable(t, m, serverRow{}) // it keeps what was rolled back
				db, _ := openScript(t, slices.Concat([]Step{begun, table.insert()}, tt.check,
					[]Step{back, begun, table.insert(), table.load(), back})...)
				mark, err := m.Do(t.Context(), db, testKey, func(context.Context, *sql.Tx) error {
					return tt.effect
				})
				assert.ErrorIs(t, err, errCommittedItself, "Do = %v", mark.Outcome)
				assert.True(t, dedup.IsPermanent(err), "Do = %v", mark.Outcome)
			})
		})
	}
}

// Prevents: a COMMIT is lost, and the next try ends before it has marked anything. The effect is
// then taken for one that has committed half of itself.
func TestSQLServerLostCommitThenDeadlock(t *testing.T) {
	m := newMarks(t, dialect.SQLServer)
	begun, back := begunAs(0, 1, 7), Step{Query: serverBack + `OFF`}
	for name, between := range map[string][]Step{
		"in the INSERT": {begun, refused(1205), back},
		"in BEGIN":      {{Query: serverBegun, Err: serverError(40613)}, back},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := newServerTable(t, m, serverRow{})
				db, s := openScript(t, slices.Concat([]Step{begun, table.insert(), still(7), back},
					between, []Step{begun, table.insert(), table.load(), back})...)
				s.Commits = []error{io.ErrUnexpectedEOF}
				ran := 0
				marks, err := m.DoBatch(t.Context(), db, []string{"a", "", "b"},
					func(context.Context, *sql.Tx, []int) error { ran++; return nil })
				require.NoError(t, err)
				assert.Equal(t, 1, ran, "DoBatch = %+v", marks)
				require.Equal(t, dedup.Duplicate, marks[0].Outcome, "DoBatch = %+v", marks)
				require.Error(t, marks[1].Err, "DoBatch = %+v", marks)
				assert.Equal(t, dedup.Duplicate, marks[2].Outcome, "DoBatch = %+v", marks)
			})
		})
	}
}
