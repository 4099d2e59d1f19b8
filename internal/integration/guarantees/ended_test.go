package guarantees_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/sqladapter"
)

// endedInSQLite: SQLite ends a transaction when a statement of an effect fails in certain ways. If
// the effect ignores the error and continues, each of its later statements is committed by itself,
// without the mark. A pool of OpenSQLite prevents that: it checks before each statement.
func endedInSQLite(t *testing.T) {
	heedless := func(s *shop, heeds bool) func(context.Context, *sql.Tx) error {
		first := true
		return func(ctx context.Context, tx *sql.Tx) error {
			if first {
				first = false
				_, err := tx.ExecContext(ctx,
					`INSERT OR ROLLBACK INTO `+s.ledger+`_unique VALUES (1), (1)`)
				assert.Error(t, err, "nothing has ended the transaction")
				if heeds {
					return err
				}
			}
			return s.effect(ctx, tx, "m")
		}
	}
	for name, c := range map[string]struct {
		open  func(driver, dsn string) (*sql.DB, error)
		heeds bool
		want  int
	}{
		"sql.Open, goes on":     {sql.Open, false, 2},
		"sql.Open, stops":       {sql.Open, true, 1},
		"OpenSQLite, goes on":   {sqladapter.OpenSQLite, false, 1},
		"OpenSQLite, and stops": {sqladapter.OpenSQLite, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			db, err := c.open("sqlite", sqliteDSN(t))
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			s := newShop(t, db, sqladapter.SQLite, "marks")
			s.migrate()
			s.exec(`CREATE TABLE ` + s.ledger + `_unique (id int PRIMARY KEY)`)
			effect := heedless(s, c.heeds)
			for range 3 {
				if _, err := s.marks.Do(t.Context(), s.db, "m", effect); err == nil {
					break
				}
			}
			_, err = s.marks.Do(t.Context(), s.db, "m", effect)
			assert.NoError(t, err)
			s.want("m", c.want, "an effect that went on after its transaction had ended is committed by itself")
		})
	}
}
