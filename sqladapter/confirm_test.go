package sqladapter

import (
	"context"
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
)

// Confirm returns a status for each state of the mark, and never commits.
func TestConfirm(t *testing.T) {
	m := newMarks(t, SQLite)
	e, err := m.entry(testKey, nil)
	require.NoError(t, err)
	mine := Mark{Outcome: dedup.Acquired, id: e.id, stamp: at(1, 9)}
	absent := Step{Query: insertText(m), Rows: inserted}
	taken := Step{Query: insertText(m)}
	found := func(stamp int64) Step {
		return Step{Query: loadText(m), Rows: func(args []any) [][]driver.Value {
			return [][]driver.Value{{args[0], stamp, nil, int64(1000), int64(1000), nil}}
		}}
	}
	tests := map[string]struct {
		steps  []Step
		begins []error
		want   CommitStatus
		err    error
	}{
		"ours":              {steps: []Step{taken, found(at(1, 9))}, want: Committed},
		"another's":         {steps: []Step{taken, found(at(1, 8))}, want: CommittedByAnother},
		"of another moment": {steps: []Step{taken, found(at(2, 9))}, want: CommittedByAnother},
		"nobody's":          {steps: []Step{absent}, want: NotCommitted},
		"rolled back since": {steps: []Step{taken, {Query: loadText(m)}, absent},
			want: NotCommitted},
		"wait was cut short": {steps: []Step{{Query: insertText(m), Err: codeError("55P03")}},
			err: dedup.ErrInFlight},
		"no answer": {steps: []Step{{Query: insertText(m), Err: driver.ErrBadConn}},
			err: driver.ErrBadConn},
		"no connection": {begins: []error{codeError("57P03")}, err: codeError("57P03")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			db, s := openScript(t, tt.steps...)
			s.Begins = tt.begins
			got, err := m.Confirm(t.Context(), db, testKey, mine)
			assert.Equal(t, tt.want, got)
			assert.ErrorIs(t, err, tt.err)
			assert.Equal(t, got != Undecided, err == nil)
			assert.Zero(t, s.Committed, "%d begun", s.Begun)
			assert.Equal(t, s.Begun-len(tt.begins), s.RolledBack, "%d begun", s.Begun)
		})
	}
}

func TestConfirmRefuses(t *testing.T) {
	m := newMarks(t, SQLite)
	db, _ := openScript(t) // any statement fails the test
	mine := Mark{Outcome: dedup.Acquired, stamp: at(1, 9)}
	for name, tt := range map[string]struct {
		field string
		call  func() (CommitStatus, error)
	}{
		"a duplicate": {"mark", func() (CommitStatus, error) {
			return m.Confirm(t.Context(), db, "k", Mark{Outcome: dedup.Duplicate, stamp: at(1, 9)})
		}},
		"made by hand": {"mark", func() (CommitStatus, error) {
			return m.Confirm(t.Context(), db, "k", Mark{Outcome: dedup.Acquired})
		}},
		// Prevents: "not committed" for a key that is not the key of the Mark.
		"another key": {"mark", func() (CommitStatus, error) {
			return m.Confirm(t.Context(), db, "k", mine)
		}},
		"empty key": {"key", func() (CommitStatus, error) {
			return m.Confirm(t.Context(), db, "", mine)
		}},
		"nil db": {"db", func() (CommitStatus, error) {
			return m.Confirm(t.Context(), nil, "k", mine)
		}},
		"nil context": {"ctx", func() (CommitStatus, error) { return m.Confirm(nil, db, "k", mine) }}, //nolint:staticcheck // the mistake
		"zero Ledger": {"Ledger", func() (CommitStatus, error) {
			return new(Ledger).Confirm(t.Context(), db, "k", mine)
		}},
		"native, zero": {"Begin", func() (CommitStatus, error) {
			return Native{Ledger: m}.Confirm(context.Background(), "k", mine)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tt.call()
			var input *dedup.InputError
			assert.Equal(t, Undecided, got)
			require.ErrorAs(t, err, &input)
			assert.Equal(t, tt.field, input.Field)
		})
	}
}
