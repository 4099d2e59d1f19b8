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

// TestMigrateTogether: several processes start at once on an empty database, and one
// more comes later.
func TestMigrateTogether(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		s.drop(t)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := s.marks.Migrate(t.Context(), s.db); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if _, err := s.deliver(t.Context(), "m", nil); err != nil {
			t.Fatal(err)
		}
		if err := s.marks.Migrate(t.Context(), s.db); err != nil {
			t.Error(err)
		}
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
			if _, err := s.deliver(t.Context(), "m", nil); err != nil {
				t.Fatal(err)
			}
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
			if err := s.db.QueryRowContext(t.Context(), catalog).Scan(&indexes); err != nil ||
				indexes != 1 {
				t.Errorf("table %s has %d retention indexes, %v", table, indexes, err)
			}
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
			if _, err := db.ExecContext(t.Context(), `CREATE SCHEMA `+schema); err != nil {
				t.Fatal(err)
			}
			cascade := ` CASCADE`
			if e.dialect == sqladapter.MySQL {
				cascade = `` // it always does
			}
			t.Cleanup(func() {
				if _, err := db.ExecContext(context.WithoutCancel(t.Context()),
					`DROP SCHEMA `+schema+cascade); err != nil {
					t.Error(err)
				}
			})
		}
		s := newShop(t, e, func(c *sqladapter.Config) { c.Schema = schema })
		if first, err := s.deliver(t.Context(), "m", nil); err != nil || !first {
			t.Fatal(first, err)
		}
		s.wantMark(t, "m", true)
		var n int
		if err := s.db.QueryRowContext(t.Context(),
			`SELECT count(*) FROM `+schema+`."`+s.table+`"`).Scan(&n); err != nil || n != 1 {
			t.Errorf("%d marks in the schema, %v", n, err)
		}
	})
}

// TestUpTo: versions of a store by themselves, and none is undone by who asks for less.
func TestUpTo(t *testing.T) {
	forEachDeleting(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		m := newStore(t, s.db, e.dialect, s.table+"_claims").Migrations()
		t.Cleanup(func() { _ = m.To(context.WithoutCancel(t.Context()), s.db, 0) })
		var input *dedup.InputError
		for _, version := range []int{0, m.Newest() + 1} {
			if err := m.UpTo(t.Context(), s.db, version); !errors.As(err, &input) ||
				input.Field != "version" {
				t.Errorf("UpTo %d = %v", version, err)
			}
		}
		if err := m.UpTo(t.Context(), nil, 1); !errors.As(err, &input) || input.Field != "db" {
			t.Errorf("UpTo without a pool = %v", err)
		}
		for version := 1; version <= m.Newest(); version++ {
			if err := m.UpTo(t.Context(), s.db, version); err != nil {
				t.Fatal(err)
			}
			if has, err := m.Version(t.Context(), s.db); err != nil || has != version {
				t.Errorf("version %d, %v; want %d", has, err, version)
			}
		}
		if err := errors.Join(m.UpTo(t.Context(), s.db, 1),
			m.Check(t.Context(), s.db)); err != nil {
			t.Error(err)
		}
	})
	var none *sqlstore.Store
	if none.Migrations() != nil {
		t.Error("a nil store has migrations")
	}
}

// TestMigrateDownUp: down with what is there, and up again from nothing; the level is told.
func TestMigrateDownUp(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		if _, err := s.deliver(t.Context(), "m", nil); err != nil {
			t.Fatal(err)
		}
		if err := s.marks.Check(t.Context(), s.db); err != nil {
			t.Error(err)
		}
		if err := s.marks.Migrations().To(t.Context(), s.db, 0); err != nil {
			t.Fatal(err)
		}
		var level *migration.LevelError
		if err := s.marks.Check(t.Context(), s.db); !errors.As(err, &level) || level.Has != 0 ||
			level.Needs != s.marks.Migrations().Newest() || level.Table != s.table {
			t.Errorf("Check = %v, want a LevelError", err)
		}
		if _, err := s.deliver(t.Context(), "m", nil); err == nil {
			t.Error("there are no tables, and a message was delivered")
		}
		if err := s.marks.Migrate(t.Context(), s.db); err != nil {
			t.Fatal(err)
		}
		if first, err := s.deliver(t.Context(), "m", nil); err != nil || !first {
			t.Errorf("from nothing: first is %v, %v", first, err)
		}
		if err := s.marks.Check(t.Context(), s.db); err != nil {
			t.Error(err)
		}
	})
}

// TestMigrateTellsOfADroppedTable: a table that somebody has dropped by hand is not made anew in
// silence, and what Migrate says to do about it helps.
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
				if err := call(t.Context(), s.db); err == nil ||
					!strings.Contains(err.Error(), "To(ctx, db, 0)") {
					t.Errorf("%s without %s: %v", name, s.table+suffix, err)
				}
			}
			if err := errors.Join(s.marks.Migrations().To(t.Context(), s.db, 0),
				s.marks.Migrate(t.Context(), s.db), s.marks.Check(t.Context(), s.db)); err != nil {
				t.Error(err)
			}
			s.wantFirst(t, "m", true)
			s.wantFirst(t, "m", false)
		}
	})
}

// TestMigrateRefuses: somebody else's table under our name is left alone, and so is one of
// an older form.
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
			if err := s.marks.Migrate(t.Context(), s.db); err == nil ||
				!strings.Contains(err.Error(), s.table) || !strings.Contains(err.Error(), "form") {
				t.Errorf("%s: Migrate = %v, want an error that names the table and why", name, err)
			}
			var n int
			if err := s.db.QueryRowContext(t.Context(),
				`SELECT count(*) FROM "`+s.table+`"`).Scan(&n); err != nil || n != 1 {
				t.Errorf("%s: %d rows are left, %v", name, n, err)
			}
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
		if _, err := s.marks.MarkTx(t.Context(), tx, "jane@example.org",
			dedup.WithScope("tenant-7"), dedup.WithFingerprint([]byte("card 4242"))); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		var id, fingerprint []byte
		var made int64
		columns := `id, stamp >> 20, fingerprint`
		switch e.dialect {
		case sqladapter.Postgres:
			columns = `uuid_send(id), stamp >> 20, fingerprint`
		case sqladapter.MySQL:
			columns = `id, created_at, fingerprint`
		}
		if err := s.db.QueryRowContext(t.Context(),
			`SELECT `+columns+` FROM "`+s.table+`"`).Scan(&id, &made, &fingerprint); err != nil {
			t.Fatal(err)
		}
		if age := time.Since(time.UnixMilli(made)); len(id) != 16 || len(fingerprint) != 17 ||
			age.Abs() > time.Hour {
			t.Errorf("%d and %d bytes, %v old", len(id), len(fingerprint), age)
		}
		if text := fmt.Sprintf("%s %s", id, fingerprint); strings.Contains(text, "jane") ||
			strings.Contains(text, "tenant") || strings.Contains(text, "4242") {
			t.Errorf("clear text at rest: %q", text)
		}
	})
}

// TestMismatch: the same key with another payload is told apart, the transaction stays
// usable, and keys that only a collation would merge stay apart.
func TestMismatch(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newShop(t, e)
		tx := begin(t, s.db, sql.LevelDefault)
		mark := func(key string, opts ...dedup.Option) (sqladapter.Mark, error) {
			return s.marks.MarkTx(t.Context(), tx, key, opts...)
		}
		first, err := mark("Order-1", dedup.WithFingerprint([]byte("10 EUR")))
		if err != nil || !first.First() {
			t.Fatal(first, err)
		}
		if e.dialect != sqladapter.MySQL && time.Since(first.At).Abs() > time.Hour ||
			first.Age > time.Minute {
			t.Errorf("first mark is %v old, made at %v", first.Age, first.At)
		}
		other, err := mark("Order-1", dedup.WithFingerprint([]byte("99 EUR")))
		if other.Outcome != dedup.Mismatch || !errors.Is(err, dedup.ErrMismatch) ||
			other.Fingerprint != first.Fingerprint || time.Since(other.At).Abs() > time.Hour {
			t.Errorf("other payload: %+v, %v", other, err)
		}
		for _, same := range [][]dedup.Option{nil, {dedup.WithFingerprint([]byte("10 EUR"))}} {
			if m, err := mark("Order-1", same...); m.Outcome != dedup.Duplicate || err != nil {
				t.Errorf("duplicate: %v, %v", m.Outcome, err)
			}
		}
		for _, key := range []string{"order-1", "Order-1 ", "Örder-1", "Order-1'; --",
			"{Order-1}"} {
			if m, err := mark(key); err != nil || !m.First() {
				t.Errorf("%q: %v, %v; want a key of its own", key, m.Outcome, err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
	})
}
