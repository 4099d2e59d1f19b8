package migrate

import (
	"cmp"
	"context"
	"database/sql"
	"io/fs"
	"math"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/outbox"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/migration"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// nobody is a namespace, a group and a key without any record.
const nobody = "onceward.migrate"

// component is what the four kinds of tables have in common. Its calls use the pool that it was
// made with.
type component struct {
	table  string
	newest int
	// holds describes what is lost when all versions are undone.
	holds string

	version func(ctx context.Context) (int, error)
	up      func(ctx context.Context, to int) error
	down    func(ctx context.Context, to int) error
	// read looks up a key that does not exist: it fails if the tables have another form.
	read func(ctx context.Context) error
	// check is for tables that have the newest version.
	check func(ctx context.Context) error

	sql          func() string
	files, goose func() fs.FS
}

// newComponent checks names and settings. Its errors name the flag. It does not touch the database.
func newComponent(o *Options, db *sql.DB) (*component, error) {
	made := map[string]func(*Options, *sql.DB) (*component, error){
		"marks": newMarks, "fence": newFence, "store": newStore, "outbox": newOutbox,
	}
	c, err := made[o.Kind](o, db)
	return c, cli.Named(err)
}

// versioned holds what all components of sqladapter have.
func versioned(m *migration.Set, db *sql.DB) *component {
	return &component{
		newest:  m.Newest(),
		version: func(ctx context.Context) (int, error) { return m.Version(ctx, db) },
		up:      func(ctx context.Context, to int) error { return m.UpTo(ctx, db, to) },
		down:    func(ctx context.Context, to int) error { return m.To(ctx, db, to) },
		sql:     m.SQL, files: m.Files, goose: m.GooseFiles,
	}
}

// leastWindow is used if no window was given and none is recorded. Any other is longer.
const leastWindow = time.Millisecond

// nobodys are keys without a record, one for each kind of id.
var nobodys = map[sqladapter.IDTime]string{0: nobody,
	sqladapter.UUIDv7: "00000000-0000-7000-8000-000000000000",
	sqladapter.ULID:   "00000000000000000000000000", sqladapter.Snowflake: "1"}

func newMarks(o *Options, db *sql.DB) (*component, error) {
	key := nobodys[o.IDTime]
	window := o.Window
	if !o.Windowed {
		window = leastWindow
	}
	m, err := sqladapter.New(sqladapter.Config{
		Dialect: o.Dialect, Namespace: nobody, Schema: o.Schema, Table: o.Table, Window: window,
		Retention: o.Retention, IDTime: o.IDTime, SnowflakeEpoch: o.SnowflakeEpoch,
	})
	if err != nil {
		return nil, err
	}
	c := versioned(m.Migrations(), db)
	c.table = cmp.Or(o.Table, "onceward_marks")
	c.holds = "all marks and their results: a message that is redelivered is done again"
	c.read = func(ctx context.Context) error { _, _, err := m.Lookup(ctx, db, key); return err }
	c.check = func(ctx context.Context) error { return m.Check(ctx, db) }
	step := c.up
	c.up = func(ctx context.Context, to int) error {
		if to < c.newest {
			return step(ctx, to)
		}
		return m.Migrate(ctx, db) // also records the window
	}
	return c, nil
}

func newFence(o *Options, db *sql.DB) (*component, error) {
	f, err := sqladapter.NewFence(sqladapter.FenceConfig{Dialect: o.Dialect, Group: nobody,
		Schema: o.Schema, Table: o.Table})
	if err != nil {
		return nil, err
	}
	c := versioned(f.Migrations(), db)
	c.table = cmp.Or(o.Table, "onceward_fence")
	c.holds = "the positions of all groups: a message that is redelivered is done again"
	c.read = func(ctx context.Context) error {
		_, _, err := f.Lookup(ctx, db, sqladapter.Position{Topic: nobody, TopicID: nobody})
		return err
	}
	c.check = c.read
	return c, nil
}

func newStore(o *Options, db *sql.DB) (*component, error) {
	s, err := sqlstore.New(db,
		sqlstore.Options{Dialect: o.Dialect, Schema: o.Schema, Table: o.Table})
	if err != nil {
		return nil, err
	}
	c := versioned(s.Migrations(), db)
	c.table = cmp.Or(o.Table, sqlstore.DefaultTable)
	c.holds = "all claims and records: a message that is redelivered is done again, and so is one in flight"
	c.read = func(ctx context.Context) error { return s.Lookup(ctx, []driver.ID{{}})[0].Err }
	c.check = c.read
	return c, nil
}

// boxDialects are the dialects of an outbox.
var boxDialects = map[sqladapter.Dialect]outbox.Dialect{
	sqladapter.Postgres: outbox.Postgres, sqladapter.MySQL: outbox.MySQL,
	sqladapter.SQLite: outbox.SQLite,
}

func newOutbox(o *Options, db *sql.DB) (*component, error) {
	b, err := outbox.New(outbox.Config{Dialect: boxDialects[o.Dialect], Schema: o.Schema,
		Table: o.Table})
	if err != nil {
		return nil, err
	}
	c := &component{
		table: cmp.Or(o.Table, outbox.DefaultTable), newest: b.Newest(),
		holds:   "all messages that are not published yet, and those that are parked: nobody will publish them",
		version: func(ctx context.Context) (int, error) { return b.Version(ctx, db) },
		up:      func(ctx context.Context, to int) error { return b.MigrateUp(ctx, db, to) },
		down:    func(ctx context.Context, to int) error { return b.MigrateDown(ctx, db, to) },
		read: func(ctx context.Context) error {
			if _, err := b.Lag(ctx, db); err != nil {
				return err
			}
			_, err := b.Parked(ctx, db, math.MaxInt64, 1)
			return err
		},
		sql: b.Schema, files: b.Migrations, goose: b.GooseMigrations,
	}
	c.check = c.read
	return c, nil
}
