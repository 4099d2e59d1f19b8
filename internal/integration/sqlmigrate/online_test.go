package sqlmigrate_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	pgxmigrate "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/sqlmigrate"
)

// online is a component whose second version drops an index of a table in use.
func online(d sqlmigrate.Dialect, since int) fstest.MapFS {
	texts := map[string]string{
		"0001_notes.up.sql": "CREATE TABLE IF NOT EXISTS {{table}} (id int PRIMARY KEY, author varchar(20));\n" +
			"CREATE INDEX IF NOT EXISTS {{index:_author}} ON {{table}} (author);",
		"0001_notes.down.sql": "DROP TABLE IF EXISTS {{table}};",
		"0002_lean.up.sql": fmt.Sprintf("-- It holds up nobody.\n-- Only since server_version_num %06d.\n", since) +
			"DROP INDEX CONCURRENTLY IF EXISTS {{table:_author}};",
		"0002_lean.down.sql": fmt.Sprintf("-- Only since server_version_num %06d.\n", since) +
			"DROP INDEX CONCURRENTLY IF EXISTS {{table:_author}};\n" +
			fmt.Sprintf("-- Only since server_version_num %06d.\n", since) +
			"CREATE INDEX CONCURRENTLY {{index:_author}} ON {{table}} (author);",
	}
	if d == sqlmigrate.MySQL {
		texts["0001_notes.up.sql"] = "CREATE TABLE IF NOT EXISTS {{table}} (id int PRIMARY KEY, author varchar(20), KEY {{index:_author}} (author));"
		texts["0002_lean.up.sql"] = "ALTER TABLE {{table}} DROP INDEX {{index:_author}}, ALGORITHM=INPLACE, LOCK=NONE;"
		texts["0002_lean.down.sql"] = "ALTER TABLE {{table}} ADD INDEX {{index:_author}} (author), ALGORITHM=INPLACE, LOCK=NONE;"
	}
	dir := fstest.MapFS{}
	for name, text := range texts {
		dir[string(d)+"/"+name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return dir
}

// forEachOnline is forEach of the engines that drop an index online.
func forEachOnline(t *testing.T, test func(t *testing.T, e engine, s *store)) {
	for _, e := range engines()[:3] {
		t.Run(e.name, func(t *testing.T) {
			test(t, e, newStore(t, e, func(c *sqlmigrate.Config) {
				c.Files = online(e.dialect, 140000)
			}))
		})
	}
}

// indexes counts those that serve.
func (s *store) indexes() (n int) {
	s.t.Helper()
	catalog := `SELECT count(*) FROM pg_index WHERE indisvalid AND NOT indisprimary AND indrelid = to_regclass('` +
		s.name(s.table) + `')`
	if s.dialect == sqlmigrate.MySQL {
		catalog = `SELECT count(*) FROM information_schema.statistics WHERE table_schema = '` + s.schema +
			`' AND index_name = 'Notes_author'`
	}
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), catalog).Scan(&n))
	return n
}

func (s *store) recorded(want int) {
	s.t.Helper()
	got, err := s.Version(s.t.Context(), s.db)
	require.NoError(s.t, err)
	assert.Equal(s.t, want, got)
}

// TestOnline: up, down and up again, each step reported, and all the way down from the version
// without the index.
func TestOnline(t *testing.T) {
	forEachOnline(t, func(t *testing.T, _ engine, s *store) {
		var steps []sqlmigrate.Step
		ctx := sqlmigrate.Observe(t.Context(), func(step sqlmigrate.Step) {
			steps = append(steps, sqlmigrate.Step{From: step.From, To: step.To})
		})
		require.NoError(t, s.Up(ctx, s.db, 1))
		assert.Equal(t, 1, s.indexes())
		for range 2 {
			require.NoError(t, s.Up(ctx, s.db, 2))
			assert.Zero(t, s.indexes())
			require.NoError(t, s.Down(ctx, s.db, 1))
			assert.Equal(t, 1, s.indexes())
		}
		require.NoError(t, s.Up(ctx, s.db, 2))
		require.NoError(t, s.Down(ctx, s.db, 0))
		s.recorded(0)
		assert.Equal(t, []sqlmigrate.Step{{From: 0, To: 1}, {From: 1, To: 2}, {From: 2, To: 1},
			{From: 1, To: 2}, {From: 2, To: 1}, {From: 1, To: 2}, {From: 2, To: 1},
			{From: 1, To: 0}}, steps)
	})
}

// TestOnlineTogether: processes that start at once, and others that go down at once.
func TestOnlineTogether(t *testing.T) {
	forEachOnline(t, func(t *testing.T, _ engine, s *store) {
		together := func(do func() error) {
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() { assert.NoError(t, do()) })
			}
			wg.Wait()
		}
		together(func() error { return s.Up(t.Context(), s.db, 2) })
		s.recorded(2)
		assert.Zero(t, s.indexes())
		together(func() error { return s.Down(t.Context(), s.db, 1) })
		s.recorded(1)
		assert.Equal(t, 1, s.indexes())
	})
}

// TestOnlineCutOff: a version whose statements have been run, or have left an index that is not
// valid, and that is not on record, is begun again.
func TestOnlineCutOff(t *testing.T) {
	forEachOnline(t, func(t *testing.T, _ engine, s *store) {
		require.NoError(t, s.Up(t.Context(), s.db, 1))
		drop := `DROP INDEX ` + s.name("Notes_author")
		if s.dialect == sqlmigrate.MySQL {
			drop = "DROP INDEX `Notes_author` ON " + s.name(s.table)
		}
		s.exec(drop)
		require.NoError(t, s.Up(t.Context(), s.db, 2))
		s.recorded(2)
		create := "CREATE INDEX `Notes_author` ON " + s.name(s.table) + " (author)"
		if s.dialect == sqlmigrate.Postgres {
			create = `CREATE INDEX "Notes_author" ON ` + s.name(s.table) + ` (author)`
		}
		s.exec(create)
		if s.dialect == sqlmigrate.Postgres {
			s.exec(`UPDATE pg_index SET indisvalid = false WHERE indexrelid = '` + s.name("Notes_author") + `'::regclass`)
			assert.Zero(t, s.indexes())
		}
		require.NoError(t, s.Down(t.Context(), s.db, 1))
		s.recorded(1)
		assert.Equal(t, 1, s.indexes())
	})
}

// TestOnlineIndexOfAnother: another process begins to build the index after this one has dropped
// it, and is cut off. Its index is not valid, and does not count as the one that is to be built.
func TestOnlineIndexOfAnother(t *testing.T) {
	s := newStore(t, engines()[0], func(c *sqlmigrate.Config) {
		c.Files = online(sqlmigrate.Postgres, 140000)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.NoError(t, s.Up(ctx, s.db, 2))
	another, err := s.db.BeginTx(ctx, nil)
	require.NoError(t, err)
	defer func() { _ = another.Rollback() }()
	send := func(text string) {
		t.Helper()
		_, err := another.ExecContext(ctx, text)
		require.NoError(t, err)
	}
	send(`LOCK TABLE ` + s.name(s.table) + ` IN SHARE UPDATE EXCLUSIVE MODE`)
	down := make(chan error, 1)
	go func() { down <- s.Down(ctx, s.db, 1) }()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		var waiting int
		assert.NoError(t, s.db.QueryRowContext(ctx, `SELECT count(*) FROM pg_locks WHERE NOT granted`+
			` AND relation = '`+s.name(s.table)+`'::regclass`).Scan(&waiting))
		assert.Equal(t, 1, waiting, "the index is about to be built")
	}, time.Minute, 10*time.Millisecond)
	send(`CREATE INDEX "Notes_author" ON ` + s.name(s.table) + ` (author)`)
	send(`UPDATE pg_index SET indisvalid = false WHERE indexrelid = '` + s.name("Notes_author") +
		`'::regclass`)
	require.NoError(t, another.Commit())
	require.NoError(t, <-down)
	s.recorded(1)
	assert.Equal(t, 1, s.indexes())
}

// TestOnlineOldServer: an older server keeps the index, and the version is recorded.
func TestOnlineOldServer(t *testing.T) {
	s := newStore(t, engines()[0], func(c *sqlmigrate.Config) {
		c.Files = online(sqlmigrate.Postgres, 990000)
	})
	require.NoError(t, s.Up(t.Context(), s.db, 2))
	s.recorded(2)
	assert.Equal(t, 1, s.indexes())
}

// TestOnlineWithTools: golang-migrate, which has to send statements one by one, and goose.
func TestOnlineWithTools(t *testing.T) {
	t.Run("golang-migrate", func(t *testing.T) {
		s := newStore(t, engines()[0], func(c *sqlmigrate.Config) {
			c.Files = online(sqlmigrate.Postgres, 140000)
		})
		source, err := iofs.New(s.Files(), ".")
		require.NoError(t, err)
		target, err := pgxmigrate.WithInstance(s.db, &pgxmigrate.Config{SchemaName: s.schema,
			MigrationsTable: "theirs", MultiStatementEnabled: true,
			MultiStatementMaxSize: pgxmigrate.DefaultMultiStatementMaxSize})
		require.NoError(t, err)
		tool, err := migrate.NewWithInstance("iofs", source, "pgx5", target)
		require.NoError(t, err)
		require.NoError(t, tool.Up())
		require.NoError(t, s.Check(t.Context(), s.db))
		assert.Zero(t, s.indexes())
		require.NoError(t, tool.Steps(-1))
		s.recorded(1)
		assert.Equal(t, 1, s.indexes())
	})
	forEachOnline(t, func(t *testing.T, e engine, s *store) {
		speaks := map[sqlmigrate.Dialect]goose.Dialect{sqlmigrate.Postgres: goose.DialectPostgres,
			sqlmigrate.MySQL: goose.DialectMySQL}
		tool, err := goose.NewProvider(speaks[e.dialect], s.db, s.GooseFiles(),
			goose.WithTableName(s.schema+".theirs"))
		require.NoError(t, err)
		_, err = tool.Up(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Check(t.Context(), s.db))
		assert.Zero(t, s.indexes())
		_, err = tool.DownTo(t.Context(), 1)
		require.NoError(t, err)
		s.recorded(1)
		assert.Equal(t, 1, s.indexes())
	})
	t.Run("by hand", func(t *testing.T) {
		s := newStore(t, engines()[0], func(c *sqlmigrate.Config) {
			c.Files = online(sqlmigrate.Postgres, 140000)
		})
		s.exec(s.SQL()) // all of it in one transaction
		s.recorded(2)
		assert.Zero(t, s.indexes())
	})
}
