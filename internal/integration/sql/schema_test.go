package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/migration"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// TestMigrateTogether: several processes start at once on an empty database, and one starts later.
func TestMigrateTogether(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		s.drop(t)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				assert.NoError(t, s.marks.Migrate(t.Context(), s.db))
			})
		}
		wg.Wait()
		_, err := s.deliver(t.Context(), "m", nil)
		require.NoError(t, err)
		assert.NoError(t, s.marks.Migrate(t.Context(), s.db))
		s.wantMark(t, "m", true)
	})
}

// TestMigrateNames: names at their limits and in mixed case make a table, with an index by age in
// the version that has one.
func TestMigrateNames(t *testing.T) {
	forEachDeleting(t, func(t *testing.T, e engine) {
		prefix := servertest.Prefix(t)
		for _, table := range []string{"Mixed_" + prefix,
			prefix + strings.Repeat("x", 63-len(prefix))} {
			s := newShop(t, e, func(c *sqladapter.Config) { c.Table = table })
			_, err := s.deliver(t.Context(), "m", nil)
			require.NoError(t, err)
			require.NoError(t, s.marks.Migrations().To(t.Context(), s.db, 1))
			catalog := `SELECT count(*) FROM sqlite_master WHERE type = 'index' AND tbl_name = '` +
				table + `' AND sql IS NOT NULL`
			switch e.dialect {
			case sqladapter.Postgres:
				catalog = `SELECT count(*) FROM pg_indexes WHERE tablename = '` + table +
					`' AND indexname LIKE '%expiry'`
			case sqladapter.MySQL:
				catalog = `SELECT count(*) FROM information_schema.statistics WHERE table_name = '` + table + `' AND index_name LIKE '%expiry'`
			}
			var indexes int
			require.NoError(t, s.db.QueryRowContext(t.Context(), catalog).Scan(&indexes),
				"table %s", table)
			assert.Equal(t, 1, indexes, "table %s", table)
		}
	})
}

// TestMigrateSchema: a table in a named schema, which for SQLite is a database's name.
func TestMigrateSchema(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		schema := "main"
		if e.dialect != sqladapter.SQLite {
			schema = servertest.Prefix(t)
			db := e.open(t)
			_, err := db.ExecContext(t.Context(), `CREATE SCHEMA `+schema)
			require.NoError(t, err)
			cascade := ` CASCADE`
			if e.dialect == sqladapter.MySQL {
				cascade = `` // it always does
			}
			t.Cleanup(func() {
				_, err := db.ExecContext(context.WithoutCancel(t.Context()),
					`DROP SCHEMA `+schema+cascade)
				assert.NoError(t, err)
			})
		}
		s := newShop(t, e, func(c *sqladapter.Config) { c.Schema = schema })
		first, err := s.deliver(t.Context(), "m", nil)
		require.NoError(t, err)
		require.True(t, first, "%v", first)
		s.wantMark(t, "m", true)
		var n int
		err = s.db.QueryRowContext(t.Context(),
			`SELECT count(*) FROM `+schema+`."`+s.table+`"`).Scan(&n)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
	})
}

// TestUpTo: a store can go up to one version. Asking for a lower version undoes none.
func TestUpTo(t *testing.T) {
	forEachDeleting(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		m := newStore(t, s.db, e.dialect, s.table+"_claims").Migrations()
		t.Cleanup(func() { _ = m.To(context.WithoutCancel(t.Context()), s.db, 0) })
		var input *dedup.InputError
		for _, version := range []int{0, m.Newest() + 1} {
			require.ErrorAs(t, m.UpTo(t.Context(), s.db, version), &input, "UpTo %d", version)
			assert.Equal(t, "version", input.Field, "UpTo %d", version)
		}
		require.ErrorAs(t, m.UpTo(t.Context(), nil, 1), &input, "UpTo without a pool")
		assert.Equal(t, "db", input.Field, "UpTo without a pool")
		for version := 1; version <= m.Newest(); version++ {
			require.NoError(t, m.UpTo(t.Context(), s.db, version))
			has, err := m.Version(t.Context(), s.db)
			require.NoError(t, err)
			assert.Equal(t, version, has)
		}
		err := errors.Join(m.UpTo(t.Context(), s.db, 1),
			m.Check(t.Context(), s.db))
		assert.NoError(t, err)
	})
	var none *sqlstore.Store
	assert.Nil(t, none.Migrations(), "a nil store has migrations")
}

// TestMigrateDownUp: a table goes down with its marks, and up again empty. Check reports the
// version.
func TestMigrateDownUp(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		_, err := s.deliver(t.Context(), "m", nil)
		require.NoError(t, err)
		assert.NoError(t, s.marks.Check(t.Context(), s.db))
		require.NoError(t, s.marks.Migrations().To(t.Context(), s.db, 0))
		var level *migration.LevelError
		require.ErrorAs(t, s.marks.Check(t.Context(), s.db), &level)
		assert.Zero(t, level.Has)
		assert.Equal(t, s.marks.Migrations().Newest(), level.Needs)
		assert.Equal(t, s.table, level.Table)
		_, err = s.deliver(t.Context(), "m", nil)
		assert.Error(t, err, "there are no tables, and a message was delivered")
		require.NoError(t, s.marks.Migrate(t.Context(), s.db))
		first, err := s.deliver(t.Context(), "m", nil)
		require.NoError(t, err)
		assert.True(t, first, "from nothing: first")
		assert.NoError(t, s.marks.Check(t.Context(), s.db))
	})
}

// TestMigrateTellsOfADroppedTable: Migrate does not silently make a table anew that was dropped by
// hand, and the advice in its error helps.
func TestMigrateTellsOfADroppedTable(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		kind, suffixes := "TABLE", []string{"", "_results"}
		switch {
		case e.retention == sqladapter.Generations && e.dialect == sqladapter.MySQL:
			// the views are for people alone
			suffixes = []string{"_open", "_sealed", "_open_results", "_sealed_results"}
		case e.retention == sqladapter.Generations:
			kind = "VIEW"
		}
		for _, suffix := range suffixes {
			s.exec(t, `DROP `+kind+` "`+s.table+suffix+`"`)
			for name, call := range map[string]func(context.Context,
				*sql.DB) error{"Migrate": s.marks.Migrate, "Check": s.marks.Check} {
				err := call(t.Context(), s.db)
				assert.ErrorContains(t, err, "To(ctx, db, 0)", "%s without %s", name,
					s.table+suffix)
			}
			err := errors.Join(s.marks.Migrations().To(t.Context(), s.db, 0),
				s.marks.Migrate(t.Context(), s.db), s.marks.Check(t.Context(), s.db))
			assert.NoError(t, err)
			s.wantFirst(t, "m", true)
			s.wantFirst(t, "m", false)
		}
	})
}

// TestMigrateRefuses: Migrate does not touch a foreign table with our name, nor one of an older
// form.
func TestMigrateRefuses(t *testing.T) {
	forEachDeleting(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		for name, columns := range map[string]string{
			"somebody else's": `id integer, stamp text`,
			"an older one":    `id integer, owner integer, namespace text, made integer, fingerprint integer`,
		} {
			s.drop(t)
			s.exec(t, `CREATE TABLE "`+s.table+`" (`+columns+`)`)
			s.exec(t, `INSERT INTO "`+s.table+`" (id) VALUES (1)`)
			err := s.marks.Migrate(t.Context(), s.db)
			assert.ErrorContains(t, err, s.table, "%s: Migrate", name)
			assert.ErrorContains(t, err, "form", "%s: Migrate", name)
			var n int
			err = s.db.QueryRowContext(t.Context(),
				`SELECT count(*) FROM "`+s.table+`"`).Scan(&n)
			require.NoError(t, err, name)
			assert.Equal(t, 1, n, name)
			version, err := s.marks.Migrations().Version(t.Context(), s.db)
			require.NoError(t, err)
			assert.Zero(t, version, "%s: its way down would drop it", name)
		}
	})
}

// TestDigestsAtRest: no key, scope or payload is in the table.
func TestDigestsAtRest(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		tx := begin(t, s.db, sql.LevelDefault)
		_, err := s.marks.MarkTx(t.Context(), tx, "jane@example.org",
			dedup.WithScope("tenant-7"), dedup.WithFingerprint([]byte("card 4242")))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		var id, fingerprint []byte
		var made int64
		columns := `id, stamp >> 20, fingerprint`
		switch e.dialect {
		case sqladapter.Postgres:
			columns = `uuid_send(id), stamp >> 20, fingerprint`
		case sqladapter.MySQL:
			columns = `id, created_at, fingerprint`
		}
		err = s.db.QueryRowContext(t.Context(),
			`SELECT `+columns+` FROM "`+s.table+`"`).Scan(&id, &made, &fingerprint)
		require.NoError(t, err)
		assert.Len(t, id, 16)
		assert.Len(t, fingerprint, 17)
		assert.LessOrEqual(t, time.Since(time.UnixMilli(made)).Abs(), time.Hour)
		text := fmt.Sprintf("%s %s", id, fingerprint)
		assert.NotContains(t, text, "jane", "clear text at rest")
		assert.NotContains(t, text, "tenant", "clear text at rest")
		assert.NotContains(t, text, "4242", "clear text at rest")
	})
}

// TestMismatch: the same key with another payload is a mismatch, the transaction stays usable, and
// keys that are equal only to a collation stay apart.
func TestMismatch(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		tx := begin(t, s.db, sql.LevelDefault)
		mark := func(key string, opts ...dedup.Option) (sqladapter.Mark, error) {
			return s.marks.MarkTx(t.Context(), tx, key, opts...)
		}
		first, err := mark("Order-1", dedup.WithFingerprint([]byte("10 EUR")))
		require.NoError(t, err)
		require.True(t, first.First(), "%v", first)
		assert.False(t, e.dialect != sqladapter.MySQL && time.Since(first.At).Abs() > time.Hour,
			"first mark")
		assert.LessOrEqual(t, first.Age, time.Minute, "first mark")
		other, err := mark("Order-1", dedup.WithFingerprint([]byte("99 EUR")))
		assert.Equal(t, dedup.Mismatch, other.Outcome, "other payload")
		assert.ErrorIs(t, err, dedup.ErrMismatch, "other payload")
		assert.Equal(t, first.Fingerprint, other.Fingerprint, "other payload")
		assert.LessOrEqual(t, time.Since(other.At).Abs(), time.Hour, "other payload")
		for _, same := range [][]dedup.Option{nil, {dedup.WithFingerprint([]byte("10 EUR"))}} {
			m, err := mark("Order-1", same...)
			require.NoError(t, err, "duplicate")
			assert.Equal(t, dedup.Duplicate, m.Outcome, "duplicate")
		}
		for _, key := range []string{"order-1", "Order-1 ", "Örder-1", "Order-1'; --",
			"{Order-1}"} {
			m, err := mark(key)
			require.NoError(t, err, "%q: %v", key, m.Outcome)
			assert.True(t, m.First(), "%q: %v", key, m.Outcome)
		}
		assert.NoError(t, tx.Commit())
	})
}
