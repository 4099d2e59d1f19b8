package sqladapter

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/sqladapter/internal/sqlscript"
)

// Step and Script are those of package sqlscript.
type (
	Step   = sqlscript.Step
	Script = sqlscript.Script
)

// shift is that of package sqlscript.
func shift(errs *[]error) error { return sqlscript.Shift(errs) }

// openScript returns a pool on a script that also answers the queries of every transaction. It
// checks at the end that all steps were run.
func openScript(t *testing.T, steps ...Step) (*sql.DB, *Script) {
	t.Helper()
	db, s := sqlscript.Open(t, steps...)
	clocks := map[string]bool{}
	for _, d := range dialects {
		clocks[d(tableName{}, 0).clock] = true
	}
	s.Known = func(query string) (Step, bool) { return answerGuard(query, clocks[query]) }
	return db, s
}

func beginScript(t *testing.T, steps ...Step) (*sql.Tx, *Script) {
	t.Helper()
	db, s := openScript(t, steps...)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx, s
}

// answerGuard answers the queries that every transaction of SQLite and PostgreSQL makes.
func answerGuard(query string, clock bool) (Step, bool) {
	one := func(value int64) Step {
		return Step{Rows: func([]any) [][]driver.Value { return [][]driver.Value{{value}} }}
	}
	switch {
	case query == beginAnother:
		return Step{Err: errors.New("cannot start a transaction within a transaction (1)")}, true
	case query == setOwn, query == releaseOwn:
		return Step{}, true
	case clock:
		return one(time.Now().UnixMilli()), true
	case strings.HasPrefix(query, "SELECT id_form FROM"):
		return Step{Rows: func([]any) [][]driver.Value {
			return [][]driver.Value{{idForm{}.text()}}
		}}, true
	case strings.Contains(query, writtenHere):
		return one(1), true
	}
	return Step{}, false
}
