package sqlmigrate_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/internal/sqlmigrate"
)

// TestUpDownUp migrates a table with rows, which survive the steps that do not concern them.
func TestUpDownUp(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newStore(t, e)
		s.has(0)
		s.up(1)
		s.exec("INSERT INTO " + s.name(s.table) + " (id) VALUES (1), (2)")
		s.up(3)
		s.exec("UPDATE " + s.name(s.table) + " SET author = 'jane' WHERE id = 2")
		s.down(1)
		s.up(3)
		s.up(3)
		var kept, authors int
		err := s.db.QueryRowContext(t.Context(), "SELECT count(*), count(author) FROM "+
			s.name(s.table)).Scan(&kept, &authors)
		require.NoError(t, err)
		assert.Equal(t, 2, kept)
		assert.Zero(t, authors)
		s.down(0)
		s.up(3)
		assert.NoError(t, s.Up(t.Context(), s.db, 2))
		s.has(3)
	})
}

func TestCheck(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newStore(t, e)
		want := func(has, needs int, err error) {
			t.Helper()
			var level *sqlmigrate.LevelError
			require.ErrorAs(t, err, &level)
			assert.Equal(t, has, level.Has)
			assert.Equal(t, needs, level.Needs)
			assert.Equal(t, "notes", level.Component)
			assert.Equal(t, s.table, level.Table)
		}
		want(0, 3, s.Check(t.Context(), s.db))
		s.up(2)
		want(2, 3, s.Check(t.Context(), s.db))
		s.up(3)
		assert.NoError(t, s.Check(t.Context(), s.db))
		s.exec("UPDATE " + s.name(sqlmigrate.Table) + " SET version = 4")
		want(4, 3, s.Check(t.Context(), s.db))
		want(4, 3, s.Up(t.Context(), s.db, 3))
		want(4, 3, s.Down(t.Context(), s.db, 0))
		s.exec("UPDATE " + s.name(sqlmigrate.Table) + " SET version = 3")
		s.has(3)
	})
}

// TestComponentsApart: two components, and two tables of one, have versions of their own.
func TestComponentsApart(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newStore(t, e)
		s.up(3)
		twin := *s
		twin.table = "Notes2"
		twin.Migrations = twin.component()
		twin.has(0)
		other := s.component(func(c *sqlmigrate.Config) { c.Component = "other" })
		v, err := other.Version(t.Context(), s.db)
		require.NoError(t, err)
		assert.Zero(t, v, "another component has version")
		twin.up(3)
		twin.down(0)
		s.has(3)
	})
}

// TestTogether: several processes start at once.
func TestTogether(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newStore(t, e)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				assert.NoError(t, s.Up(t.Context(), s.db, 3))
			})
		}
		wg.Wait()
		s.has(3)
	})
}

// TestCutOff: a version that fails halfway leaves nothing. In MySQL it leaves the statements that
// the engine has committed, is not recorded, and succeeds when it is begun again. Here each version
// meets what an earlier attempt can have left.
func TestCutOff(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newStore(t, e)
		broken := files(e.dialect)
		name := string(e.dialect) + "/0002_author.up.sql"
		broken[name].Data = append(broken[name].Data, "SELECT nothing FROM nowhere_at_all;\n"...)
		bad := s.component(func(c *sqlmigrate.Config) { c.Files = broken })
		err := bad.Up(t.Context(), s.db, 3)
		require.ErrorContains(t, err, "version 1 to 2", "a version that fails")
		v, err := s.Version(t.Context(), s.db)
		require.NoError(t, err)
		require.Equal(t, 1, v)
		var n int
		err = s.db.QueryRowContext(t.Context(),
			"SELECT count(author) FROM "+s.name(s.table)).Scan(&n)
		assert.Equal(t, e.dialect == sqlmigrate.MySQL, err == nil, "its column is there")
		s.up(3)
		if e.dialect == sqlmigrate.MySQL {
			// A way down that was cut off after its first statement.
			s.exec("DROP INDEX `Notes_author` ON " + s.name(s.table))
		}
		s.exec("DROP TABLE " + s.name(s.table+"_pages"))
		s.down(0)
	})
}

// TestVerify: a version whose tables their owner does not recognize is not recorded.
func TestVerify(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		foreign := errors.New("these are somebody else's notes")
		var versions []int
		s := newStore(t, e, func(c *sqlmigrate.Config) {
			c.Verify = func(_ context.Context, _ *sql.Tx, version int) error {
				if versions = append(versions, version); len(versions) == 3 {
					return foreign
				}
				return nil
			}
		})
		require.ErrorIs(t, s.Up(t.Context(), s.db, 3), foreign)
		v, err := s.Version(t.Context(), s.db)
		require.NoError(t, err)
		assert.Equal(t, 2, v)
		s.up(3)
		s.down(2)
		assert.Equal(t, []int{1, 2, 3, 3}, versions)
	})
}

// TestCancelled: a caller that waits for another's migration may leave, and leaves no lock behind.
func TestCancelled(t *testing.T) {
	for _, e := range engines()[:2] {
		t.Run(e.name, func(t *testing.T) {
			s := newStore(t, e)
			lock := `SELECT pg_advisory_lock(hashtextextended('onceward migrate', 0))`
			if e.dialect == sqlmigrate.MySQL {
				lock = `SELECT GET_LOCK('onceward migrate', 60)`
			}
			holder, err := s.db.Conn(t.Context())
			require.NoError(t, err)
			_, err = holder.ExecContext(t.Context(), lock)
			require.NoError(t, err)
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Up(ctx, s.db, 3) }()
			waitFor(t, s.db, e.dialect)
			cancel(errors.New("left"))
			assert.Error(t, <-ended, "Up succeeded in spite of the lock")
			_ = holder.Raw(func(any) error { return errGone }) // ends the session, and its lock
			_ = holder.Close()
			s.up(3)
		})
	}
}

// TestWaitsForWriter: in SQLite a step waits for another writer, for the busy timeout of its
// connection. After a read in its own transaction SQLite would refuse each repetition at once.
func TestWaitsForWriter(t *testing.T) {
	const repetitions = time.Second // all repetitions together would take less
	s := newStore(t, engines()[3])
	s.up(1)
	writer, err := s.db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = writer.Close() }()
	_, err = writer.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Up(t.Context(), s.db, 3) }()
	select {
	case err := <-ended:
		t.Fatalf("Up did not wait for the writer: %v", err)
	case <-time.After(repetitions):
	}
	_, err = writer.ExecContext(t.Context(), "COMMIT")
	require.NoError(t, err)
	assert.NoError(t, <-ended)
	s.has(3)
}

// TestReader: a role that may only read finds the newest version there, and is not stopped.
func TestReader(t *testing.T) {
	s := newStore(t, engines()[0])
	s.up(3)
	role := servertest.Prefix(t)
	s.exec("CREATE ROLE " + role + " LOGIN")
	t.Cleanup(func() { s.exec("DROP OWNED BY " + role); s.exec("DROP ROLE " + role) })
	s.exec("GRANT USAGE ON SCHEMA " + s.schema + " TO " + role)
	s.exec("GRANT SELECT ON " + s.name(sqlmigrate.Table) + " TO " + role)
	db := open(t, "pgx", strings.Replace(servertest.Postgres(t), "onceward@", role+"@", 1))
	assert.NoError(t, s.Check(t.Context(), db))
	assert.NoError(t, s.Up(t.Context(), db, 3))
	assert.Error(t, s.Down(t.Context(), db, 2), "a reader has undone a version")
	s.has(3)
}

// TestNothingLeftOpen: a connection goes back to its pool without a transaction, so that its next
// user can begin one at any level.
func TestNothingLeftOpen(t *testing.T) {
	forEach(t, func(t *testing.T, e engine) {
		s := newStore(t, e)
		s.db.SetMaxOpenConns(1)
		for _, step := range []struct {
			name string
			do   func() error
		}{
			{"Check without tables", func() error { _ = s.Check(t.Context(), s.db); return nil }},
			{"Up", func() error { return s.Up(t.Context(), s.db, 3) }},
			{"Up with nothing to do", func() error { return s.Up(t.Context(), s.db, 3) }},
			{"Check", func() error { return s.Check(t.Context(), s.db) }},
			{"Down", func() error { return s.Down(t.Context(), s.db, 0) }},
		} {
			require.NoError(t, step.do(), step.name)
			tx, err := s.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
			require.NoError(t, err, "after %s", step.name)
			assert.NoError(t, tx.Rollback())
		}
	})
}
