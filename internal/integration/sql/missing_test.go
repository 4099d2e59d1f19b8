package sql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/pgxv5"
)

const migrationsHaveNotRun = "does not exist: its migrations have not run in this schema; " +
	"call Migrate, or run `onceward migrate`: "

// wantNotMigrated checks the error of a call whose table does not exist: it says which one and what
// to do, and is otherwise the database's error.
func wantNotMigrated(t *testing.T, err error, table, call string) {
	t.Helper()
	wantAdvice(t, err, table, call)
	wantMissingTable(t, err, call)
}

func wantAdvice(t *testing.T, err error, table, call string) {
	t.Helper()
	assert.ErrorContains(t, err, "table "+table, call)
	assert.ErrorContains(t, err, migrationsHaveNotRun, call)
	assert.True(t, sqlerr.NoTable(err), "%s: %v", call, err)
}

// undone returns the error of a call in a transaction, which it rolls back.
func undone(t *testing.T, db *sql.DB, call func(tx *sql.Tx) error) error {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	err = call(tx)
	require.NoError(t, tx.Rollback())
	return err
}

// wantMissingTable: the error still has the database's code, and nothing is repeated because of it.
func wantMissingTable(t *testing.T, err error, call string) {
	t.Helper()
	assert.True(t, sqlerr.NoTable(err), "%s: %v", call, err)
	assert.False(t, sqladapter.Retryable(err), "%s: %v", call, err)
	assert.False(t, dedup.IsPermanent(err), "%s: %v", call, err)
}

// forgetful is a shop whose program has not called Migrate.
func forgetful(t *testing.T, e engine) *shop {
	t.Helper()
	s := newShop(t, e, func(cfg *sqladapter.Config) { cfg.Window = time.Hour })
	s.drop(t)
	return s
}

// Prevents: a program that forgot to call Migrate gets the database's error alone, about a table
// whose name it has never read.
func TestMissingMarksAreNamed(t *testing.T) {
	forEachClient(t, func(t *testing.T, e engine) {
		s := forgetful(t, e)
		runs := 0
		calls := map[string]error{}
		if e.pgx {
			calls["Do"] = inPgx(t, s, &runs)
		} else {
			_, calls["Do"] = s.marks.Do(t.Context(), s.db, "k",
				func(context.Context, *sql.Tx) error { runs++; return nil })
			_, calls["DoBatch"] = s.marks.DoBatch(t.Context(), s.db, []string{"k", "l"},
				func(context.Context, *sql.Tx, []int) error { runs++; return nil })
		}
		_, calls["Run"] = s.runner(t).Run(t.Context(), "k",
			func(context.Context) ([]byte, bool, error) { runs++; return nil, false, nil })
		calls["MarkTx"] = undone(t, s.db, func(tx *sql.Tx) error {
			_, err := s.marks.MarkTx(t.Context(), tx, "k")
			return err
		})
		calls["MarkBatchTx"] = undone(t, s.db, func(tx *sql.Tx) error {
			_, err := s.marks.MarkBatchTx(t.Context(), tx, []dedup.Request{{Key: "k"}, {Key: "l"}})
			return err
		})
		calls["SaveResultTx"] = undone(t, s.db, func(tx *sql.Tx) error {
			return s.marks.SaveResultTx(t.Context(), tx, "k", []byte("r"))
		})
		_, _, calls["Lookup"] = s.marks.Lookup(t.Context(), s.db, "k")
		calls["SetWindow"] = s.marks.SetWindow(t.Context(), s.db)
		if e.retention == sqladapter.Generations {
			_, calls["Rotate"] = s.marks.Rotate(t.Context(), s.db)
		} else {
			_, calls["DeleteExpired"] = s.marks.DeleteExpired(t.Context(), s.db, 10)
		}
		for call, err := range calls {
			wantNotMigrated(t, err, s.table[:len(s.table)-len("_marks")], call)
		}
		assert.Zero(t, runs, "runs of the effect")
		require.NoError(t, s.marks.Migrate(t.Context(), s.db), "what the errors advise")
		first, err := s.deliver(t.Context(), "k", nil)
		assert.NoError(t, err)
		assert.True(t, first)
	})
}

// inPgx returns the error of pgxv5.Do, and requires that it wraps one of pgx.
func inPgx(t *testing.T, s *shop, runs *int) error {
	t.Helper()
	_, err := pgxv5.Do(t.Context(), s.marks, s.pool, "k",
		func(context.Context, pgx.Tx) error { *runs++; return nil })
	var own *pgconn.PgError
	require.ErrorAs(t, err, &own)
	assert.Equal(t, "42P01", own.Code)
	return err
}

func TestMissingFenceIsNamed(t *testing.T) {
	forEachFence(t, func(t *testing.T, e engine) {
		s := newTill(t, e)
		require.NoError(t, s.Migrations().To(t.Context(), s.db, 0))
		_, err := s.once(payments(1), 0, 1)
		wantNotMigrated(t, err, s.cfg.Table, "Do")
		wantNotMigrated(t, undone(t, s.db, func(tx *sql.Tx) error {
			_, err := s.AdvanceTx(t.Context(), tx, payments(1), 0, 1)
			return err
		}), s.cfg.Table, "AdvanceTx")
		wantNotMigrated(t, undone(t, s.db, func(tx *sql.Tx) error {
			return s.Forget(t.Context(), tx, payments(1))
		}), s.cfg.Table, "Forget")
		_, _, err = s.Lookup(t.Context(), s.db, payments(1))
		wantNotMigrated(t, err, s.cfg.Table, "Lookup")
	})
}

func TestMissingStoreIsNamed(t *testing.T) {
	for _, e := range storeEngines() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			table := servertest.Prefix(t)
			store := e.newStore(t, openDB(t, e.driver, e.dsn(t)), table)
			d, err := dedup.New(store, dedup.Config{Namespace: "n", Window: time.Hour,
				LeaseTTL: time.Minute})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, d.Close(context.Background())) })
			_, err = dedup.Do(t.Context(), d, "k", func(context.Context) (int, error) {
				return 0, assert.AnError
			})
			wantAdvice(t, err, table, "Do")
			assert.True(t, dedup.OutcomeUnknown(err), "as any error of a store is: %v", err)
			assert.NotErrorIs(t, err, assert.AnError, "the handler has run")
			_, err = store.Forgets(t.Context())
			wantNotMigrated(t, err, table+"_forgets", "Forgets")
		})
	}
}

// A missing table of the effect or of a trigger is the user's: no migration of ours makes it, even
// if its name begins like one of ours.
func TestMissingTablesOfOthersAreNotOurs(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		other := s.table + "_audit"
		_, err := s.do(t.Context(), "k", func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), `INSERT INTO "`+other+`" VALUES (1)`)
			return err
		})
		wantOthers(t, err, "effect")
		if e.retention == sqladapter.Generations {
			return
		}
		s.trigger(t, other)
		_, err = s.do(t.Context(), "k")
		wantOthers(t, err, "trigger")
	})
}

func wantOthers(t *testing.T, err error, call string) {
	t.Helper()
	require.Error(t, err, call)
	wantMissingTable(t, err, call)
	assert.NotContains(t, err.Error(), "migrat", call)
}

// trigger inserts into a table that does not exist, whenever a key is marked.
func (s *shop) trigger(t *testing.T, table string) {
	t.Helper()
	insert := `INSERT INTO "` + table + `" VALUES (1)`
	create := `CREATE TRIGGER "` + s.table + `_t" BEFORE INSERT ON "` + s.table + `" FOR EACH ROW `
	switch s.dialect {
	case sqladapter.Postgres:
		s.exec(t, `CREATE FUNCTION "`+s.table+`_f"() RETURNS trigger LANGUAGE plpgsql AS `+
			`$$ BEGIN `+insert+`; RETURN NEW; END $$`)
		t.Cleanup(func() { s.exec(t, `DROP FUNCTION "`+s.table+`_f"() CASCADE`) })
		s.exec(t, create+`EXECUTE FUNCTION "`+s.table+`_f"()`)
	case sqladapter.MySQL:
		s.exec(t, create+insert)
	default:
		s.exec(t, create+`BEGIN `+insert+`; END`)
	}
}
