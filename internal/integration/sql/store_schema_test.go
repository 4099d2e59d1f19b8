package sql_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// makeSchema makes a schema of its own: for SQLite, a second database that the one connection
// attaches.
func makeSchema(t *testing.T, e storeEngine, db *sql.DB) string {
	t.Helper()
	name := servertest.Prefix(t)
	create, drop := "CREATE SCHEMA "+name, "DROP SCHEMA "+name
	switch e.dialect {
	case sqladapter.Postgres:
		drop += " CASCADE"
	case sqladapter.SQLite:
		db.SetMaxOpenConns(1)
		create, drop = "ATTACH ':memory:' AS "+name, "DETACH "+name
	}
	_, err := db.ExecContext(t.Context(), create)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), drop)
		assert.NoError(t, err)
	})
	return name
}

// TestStoreInASchema goes up, down and up again, in a schema and a table with names of their own.
// Another schema has a store with a table of the same name.
func TestStoreInASchema(t *testing.T) {
	forEachStore(t, func(t *testing.T, e storeEngine) {
		elsewhere, db, table := openStore(t, e)
		store, err := sqlstore.New(db,
			sqlstore.Options{Dialect: e.dialect, Schema: makeSchema(t, e, db), Table: table})
		require.NoError(t, err)
		for range 2 {
			err := store.Check(t.Context())
			require.ErrorContains(t, err, "needs a migration", "Check without tables")
			var migrating sync.WaitGroup
			for range 4 {
				migrating.Go(func() {
					assert.NoError(t, store.Migrate(t.Context()))
				})
			}
			migrating.Wait()
			require.NoError(t, store.Check(t.Context()))
			req := mustAcquire(t, store, randomID())
			require.NoError(t, store.Migrate(t.Context()))
			assert.Equal(t, driver.StateInProgress, lookupOne(t, store, req.ID).State,
				"after Migrate on data")
			assert.Equal(t, driver.StateAbsent, lookupOne(t, elsewhere, req.ID).State,
				"in another schema")
			require.NoError(t, store.Drop(t.Context()))
		}
	})
}

// TestStoreList pages through the unfinished records, among others that are not listed.
// TestStoreListByIndex: SQLite uses the partial index of unfinished records only for a query that
// repeats the index's own condition, as the statements of a list do (sqladapter/testdata). It does
// not use it for a query of one state.
func TestStoreListByIndex(t *testing.T) {
	_, db, table := openStore(t, storeSQLite)
	for _, states := range []string{"state IN (1, 5)", "state IN (1, 5) AND state IN (1)"} {
		var id, parent, unused int
		var plan string
		query := "EXPLAIN QUERY PLAN SELECT attempt FROM " + table + " WHERE " + states +
			" AND id > x'00' ORDER BY id LIMIT 9"
		err := db.QueryRowContext(t.Context(), query).Scan(&id, &parent, &unused,
			&plan)
		require.NoError(t, err, states)
		assert.Contains(t, plan, "_open", states)
	}
}

func TestStoreList(t *testing.T) {
	forEachStore(t, func(t *testing.T, e storeEngine) {
		store, db, table := openStore(t, e)
		want := map[driver.ID]driver.State{}
		for n := range 20 {
			req := mustAcquire(t, store, randomID())
			change := driver.Finish{ID: req.ID, Token: req.Token, State: driver.StateSucceeded,
				Lease: time.Hour, Hold: time.Hour, Window: time.Hour}
			switch n % 4 {
			case 0:
				end(t, store, change)
			case 1:
				want[req.ID] = driver.StateInProgress
			case 2:
				change.State = driver.StateReleased
				end(t, store, change)
			case 3:
				store.Renew(t.Context(), []driver.Renewal{{ID: req.ID, Token: req.Token,
					Lease: time.Hour, Hold: time.Hour, Window: time.Hour, Irreversible: true}})
				change.State = driver.StateReleased
				end(t, store, change)
				want[req.ID] = driver.StateUncertain
			}
		}
		plantRow(t, store, db, e.dialect, table, randomID(), "flags = 64")
		listed, foreign := map[driver.ID]driver.State{}, 0
		opts := sqlstore.ListOptions{Limit: 3}
		for more := true; more; more = opts.Cursor != "" {
			page, err := store.List(t.Context(), opts)
			require.NoError(t, err)
			for _, entry := range page.Entries {
				_, twice := listed[entry.ID]
				assert.False(t, twice, "a key is listed twice")
				listed[entry.ID] = entry.Record.State
				// SQLite's clock has milliseconds, so a key may be uncertain for zero of them
				assert.False(t, entry.Doubt > 0 && entry.Record.State != driver.StateUncertain,
					"a key that is %v is in doubt for %v", entry.Record.State, entry.Doubt)
				assert.Equal(t, entry.Record.State == driver.StateUncertain,
					entry.Record.Irreversible, "a key that is %v is in doubt for %v",
					entry.Record.State, entry.Doubt)
			}
			foreign += page.Foreign
			opts.Cursor = page.Cursor
		}
		assert.Len(t, listed, len(want))
		assert.Equal(t, 1, foreign)
		for id, state := range want {
			assert.Equal(t, state, listed[id], "a key that")
		}
		opts.States = []driver.State{driver.StateSucceeded}
		opts.Limit = 100
		page, err := store.List(t.Context(), opts)
		require.NoError(t, err)
		assert.Len(t, page.Entries, 5)
	})
}
