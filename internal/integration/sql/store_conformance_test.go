package sql_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/deduptest"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/sqladapter"
)

// TestStoreConformance runs the suite that every Store must pass, also where connections
// have another isolation level than the one that the store wants, and where parameters
// travel in other ways.
func TestStoreConformance(t *testing.T) {
	for _, e := range []storeEngine{
		storeSQLite,
		storePostgres("postgres", nil),
		storePostgres("postgres repeatable read simple_protocol", map[string]string{
			"default_transaction_isolation": "repeatable read",
			"default_query_exec_mode":       "simple_protocol",
		}),
		storePostgres("postgres serializable exec", map[string]string{
			"default_transaction_isolation": "serializable", "default_query_exec_mode": "exec",
		}),
		storePgx("postgres", nil),
		storePgx("postgres repeatable read simple_protocol", map[string]string{
			"default_transaction_isolation": "repeatable read",
			"default_query_exec_mode":       "simple_protocol",
		}),
		storePgx("postgres serializable exec", map[string]string{
			"default_transaction_isolation": "serializable", "default_query_exec_mode": "exec",
		}),
		storeMariaDB("mariadb", "&interpolateParams=true"),
		storeMariaDB("mariadb serializable prepared",
			servertest.SessionVariable("isolation", "'SERIALIZABLE'")),
		storeMariaDB("mariadb autocommit off", "&interpolateParams=true&autocommit=0"),
	} {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			deduptest.Run(t, storeHarness(t, e))
		})
	}
}

func storeHarness(t *testing.T, e storeEngine) deduptest.Harness {
	t.Helper()
	store, db, table := openStore(t, e)
	h := deduptest.Harness{
		New:        func(t testing.TB) dedup.Store { return e.newStore(t, db, table) },
		Lease:      60 * time.Millisecond,
		WalkSteps:  12,
		Unreadable: make(map[string]func(testing.TB, dedup.Store, driver.ID)),
	}
	for name, columns := range map[string]string{
		"state of a newer version": "state = 9",
		"flag of a newer version":  "flags = 64",
		"long fingerprint":         "fingerprint = " + bytesLiteral(e.dialect, make([]byte, 18)),
		"short origin":             "origin = " + bytesLiteral(e.dialect, make([]byte, 23)),
		"negative fence":           "fence = -1",
	} {
		h.Unreadable[name] = func(t testing.TB, _ dedup.Store, id driver.ID) {
			t.Helper()
			plantRow(t, store, db, e.dialect, table, id, columns)
		}
	}
	return h
}

// plantRow changes the row of a live claim. Where connections are serializable, PostgreSQL may
// refuse a transaction because of what other tests read meanwhile (SQLSTATE 40001): it is run
// again.
func plantRow(t testing.TB, store dedup.Store, db *sql.DB, dialect sqladapter.Dialect, table string,
	id driver.ID, columns string) {
	t.Helper()
	mustAcquire(t, store, id)
	query := "UPDATE " + quotedTable(dialect, table) + " SET " + columns + " WHERE id = " +
		idLiteral(dialect, id)
	update := func() error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(t.Context(), query); err != nil {
			return err
		}
		return tx.Commit()
	}
	err := update()
	for sqlerr.Transient(err) {
		err = update()
	}
	require.NoError(t, err)
}

func bytesLiteral(dialect sqladapter.Dialect, b []byte) string {
	if dialect == sqladapter.Postgres {
		return fmt.Sprintf(`'\x%x'`, b)
	}
	return fmt.Sprintf("x'%x'", b)
}
