package sql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// Prevents: one role owns the tables and another one marks in them. The next rotation makes new
// tables without rights for the second role, and its marks fail.
func TestRotateCarriesRights(t *testing.T) {
	for _, e := range []engine{inGenerations(postgres("cache_statement")),
		inGenerations(mariadb())} {
		t.Run(e.name, func(t *testing.T) {
			s := newShop(t, e)
			app := newRole(t, e, s.db)
			for _, right := range rightsInGenerations(s) {
				app.grant(t, right.what, right.table)
			}
			nothing := func(context.Context, *sql.Tx) error { return nil }
			do := func(key string, want driver.Outcome) {
				t.Helper()
				mark, err := s.marks.Do(t.Context(), app.DB, key, nothing)
				require.NoError(t, err)
				assert.Equal(t, want, mark.Outcome, key)
			}
			do("first", dedup.Acquired)
			for generation := 1; generation <= 3; generation++ {
				s.windowPassed(t, generation)
				do("new"+string(rune('0'+generation)), dedup.Acquired)
				s.rotate(t, true)
				do("after"+string(rune('0'+generation)), dedup.Acquired)
				do("new"+string(rune('0'+generation)), dedup.Duplicate)
			}
			// The role may not do more than before.
			_, err := app.ExecContext(t.Context(), `DELETE FROM `+s.open(4))
			assert.ErrorContains(t, err, "denied")
		})
	}
}

// A rotator that is a member of the owner's role leaves the tables to the owner. New tables do not
// get default rights that the old tables lack.
func TestRotateByAnotherRole(t *testing.T) {
	e := inGenerations(postgres("cache_statement"))
	s := newShop(t, e)
	stranger, rotator := newRole(t, e, s.db), newRole(t, e, s.db)
	rotator.must(t, `GRANT onceward TO `+rotator.name)
	t.Cleanup(func() { rotator.must(t, `REVOKE onceward FROM `+rotator.name) })
	_, err := rotator.ExecContext(t.Context(), `SELECT 1`)
	require.NoError(t, err)
	conn, err := rotator.Conn(t.Context())
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(),
		`ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO `+stranger.name)
	require.NoError(t, err)
	require.NoError(t, conn.Close())

	s.windowPassed(t, 1)
	s.wantFirst(t, "new", true)
	sealed, err := s.marks.Rotate(t.Context(), rotator.DB)
	require.NoError(t, err)
	require.True(t, sealed)
	var owner string
	var reads bool
	require.NoError(t, s.db.QueryRowContext(t.Context(),
		`SELECT pg_get_userbyid(relowner), has_table_privilege($1, oid, 'SELECT')`+
			` FROM pg_class WHERE oid = $2::regclass`, stranger.name[1:len(stranger.name)-1],
		s.open(2)).Scan(&owner, &reads))
	assert.Equal(t, "onceward", owner)
	assert.False(t, reads, "a default right that the old table has not")
	s.windowPassed(t, 2)
	s.wantFirst(t, "newer", true)
	s.rotate(t, true)
}

// Prevents: Check finds nothing, and the next rotation fails for a missing right.
func TestCheckTriesTheRotation(t *testing.T) {
	e := inGenerations(postgres("cache_statement"))
	s := newShop(t, e)
	require.NoError(t, s.marks.Check(t.Context(), s.db))
	owner := newRole(t, e, s.db)
	t.Cleanup(func() {
		for _, kind := range []string{"v", "r"} {
			for _, name := range s.relations(t, kind) {
				s.exec(t, `ALTER TABLE "`+name+`" OWNER TO onceward`)
			}
		}
	})
	for _, name := range s.relations(t, "r") {
		owner.grant(t, "SELECT", `"`+name+`"`)
	}
	s.exec(t, `ALTER VIEW "`+s.table+`" OWNER TO `+owner.name)
	err := s.marks.Check(t.Context(), s.db)
	require.ErrorContains(t, err, "Rotate would fail")
	assert.ErrorContains(t, err, "is not the owner of")
	assert.ErrorContains(t, err, "no CREATE in the schema")

	_, err = s.marks.Rotate(t.Context(), owner.DB)
	require.ErrorContains(t, err, "denied")
}

// Prevents: the clock of the database is days ahead for a moment, and fresh marks are deleted as
// expired. Then every redelivered message runs again.
func TestAClockThatJumpsAheadExpiresNothing(t *testing.T) {
	server := servertest.Private(t, servertest.KindPostgresClock)
	url := postgresURL(t, server.Addr, "cache_statement")
	e := engine{name: "clock", dialect: sqladapter.Postgres, open: func(t *testing.T) *sql.DB {
		return openDB(t, "pgx", url)
	}}
	deletes := newShop(t, e, func(c *sqladapter.Config) { c.Window = 24 * time.Hour })
	rotates := newShop(t, inGenerations(e), func(c *sqladapter.Config) {
		c.Window = 24 * time.Hour
	})
	store, err := sqlstore.New(deletes.db,
		sqlstore.Options{Dialect: sqladapter.Postgres, Table: deletes.table + "_claims"})
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	once, err := dedup.New(store,
		dedup.Config{Namespace: "shop", Window: 24 * time.Hour, LeaseTTL: time.Minute})
	require.NoError(t, err)
	fresh := messages(5)
	for _, message := range fresh {
		deletes.wantFirst(t, message, true)
		rotates.wantFirst(t, message, true)
		_, err := dedup.Do(t.Context(), once, message, func(context.Context) (int, error) {
			return 1, nil
		})
		require.NoError(t, err)
	}
	for range 3 {
		server.Shift(48 * time.Hour)
		// a mark with the wrong time, from which ages are counted
		for _, s := range []*shop{deletes, rotates} {
			_, err := s.marks.Do(t.Context(), s.db, "jump "+time.Now().String(),
				func(context.Context, *sql.Tx) error { return nil })
			require.NoError(t, err)
		}
		deletes.deleteExpired(t, 100, 0)
		rotates.rotate(t, false)
		swept, err := store.Sweep(t.Context(), 100)
		require.NoError(t, err)
		assert.Zero(t, swept)
		server.Shift(0)
		deletes.deleteExpired(t, 100, 0)
	}
	for _, message := range fresh {
		deletes.wantFirst(t, message, false)
		rotates.wantFirst(t, message, false)
		res, err := dedup.DoResult(t.Context(), once, message, func(context.Context) (int, error) {
			return 2, nil
		})
		require.NoError(t, err)
		assert.Equal(t, dedup.Duplicate, res.Outcome)
	}
}
