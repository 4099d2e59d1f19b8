package sql_test

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// makeSchema makes a schema of its own: of SQLite a second file, which one connection has.
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
	if _, err := db.ExecContext(t.Context(), create); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()), drop); err != nil {
			t.Error(err)
		}
	})
	return name
}

// TestStoreInASchema goes up, down and up again, in a schema and a table with names of
// their own, beside a store of the same table elsewhere.
func TestStoreInASchema(t *testing.T) {
	forEachStore(t, func(t *testing.T, e storeEngine) {
		elsewhere, db, table := openStore(t, e)
		store, err := sqlstore.New(db,
			sqlstore.Options{Dialect: e.dialect, Schema: makeSchema(t, e, db), Table: table})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := store.Check(t.Context()); err == nil ||
				!strings.Contains(err.Error(), "needs a migration") {
				t.Fatalf("Check without tables: %v", err)
			}
			var migrating sync.WaitGroup
			for range 4 {
				migrating.Go(func() {
					if err := store.Migrate(t.Context()); err != nil {
						t.Errorf("Migrate: %v", err)
					}
				})
			}
			migrating.Wait()
			if err := store.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			req := mustAcquire(t, store, randomID())
			if err := store.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if rec := lookupOne(t, store, req.ID); rec.State != driver.StateInProgress {
				t.Errorf("after Migrate on data: %v", rec.State)
			}
			if rec := lookupOne(t, elsewhere, req.ID); rec.State != driver.StateAbsent {
				t.Errorf("in another schema: %v", rec.State)
			}
			if err := store.Drop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestStoreList pages through what is unfinished, among what is not listed. TestStoreListByIndex:
// SQLite takes the index of what has not ended for a condition that has the index's own in it, as
// the statements of a list have (sqladapter/testdata), and not for one of its two states.
func TestStoreListByIndex(t *testing.T) {
	_, db, table := openStore(t, storeSQLite)
	for _, states := range []string{"state IN (1, 5)", "state IN (1, 5) AND state IN (1)"} {
		var id, parent, unused int
		var plan string
		query := "EXPLAIN QUERY PLAN SELECT attempt FROM " + table + " WHERE " + states +
			" AND id > x'00' ORDER BY id LIMIT 9"
		if err := db.QueryRowContext(t.Context(), query).Scan(&id, &parent, &unused,
			&plan); err != nil || !strings.Contains(plan, "_open") {
			t.Errorf("%s: %s, %v", states, plan, err)
		}
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
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range page.Entries {
				if _, twice := listed[entry.ID]; twice {
					t.Error("a key is listed twice")
				}
				listed[entry.ID] = entry.Record.State
				// SQLite's clock has milliseconds, in which a doubt may be none yet
				if entry.Doubt > 0 && entry.Record.State != driver.StateUncertain ||
					entry.Record.Irreversible != (entry.Record.State == driver.StateUncertain) {
					t.Errorf("a key that is %v is in doubt for %v", entry.Record.State, entry.Doubt)
				}
			}
			foreign += page.Foreign
			opts.Cursor = page.Cursor
		}
		if len(listed) != len(want) || foreign != 1 {
			t.Errorf("%d keys and %d that cannot be read are listed, want %d and 1", len(listed),
				foreign, len(want))
		}
		for id, state := range want {
			if listed[id] != state {
				t.Errorf("a key that is %v is listed as %v", state, listed[id])
			}
		}
		opts.States = []driver.State{driver.StateSucceeded}
		opts.Limit = 100
		if page, err := store.List(t.Context(), opts); err != nil || len(page.Entries) != 5 {
			t.Errorf("%d finished keys, %v", len(page.Entries), err)
		}
	})
}
