package keys

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/console"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
	"github.com/onceward/onceward/sqladapter/migration"
	"github.com/onceward/onceward/sqladapter/sqlstore"
)

// openTime bounds how long a server may take to answer the first questions.
const openTime = 15 * time.Second

// Opened is a store that exists.
type Opened struct {
	// Store can also list its keys; see console.Lister.
	Store dedup.Store
	// Name is the kind of store. Layout is how it keeps its keys in Redis; it is empty for a store
	// with a record for each key.
	Name   string
	Layout redisadapter.Layout
	// Window applies to all its keys; zero if keys have windows of their own.
	Window time.Duration
	// Redis is its client; nil for a database.
	Redis redis.UniversalClient
	// Close disconnects. It may be called twice.
	Close func()
}

// TakeWindow fills in --window, or compares it with the window that the layout has for all its
// keys.
func (o *Opened) TakeWindow(window *time.Duration) error {
	switch {
	case o.Window != 0 && *window != 0 && *window != o.Window:
		return fmt.Errorf("--window is %v; the keys of this layout have one of %v", *window,
			o.Window)
	case *window == 0:
		*window = o.Window
	}
	return nil
}

// store is the store that the commands read.
type store struct {
	Opened
	conn  io.Closer          // Redis or db
	db    *sql.DB            // nil for Redis
	marks *sqladapter.Ledger // used instead of Store
}

// Open connects, and creates nothing: a prefix or a table that nobody has used is an error.
func (l *Location) Open(ctx context.Context) (*Opened, error) {
	s, err := open(ctx, &Options{Location: *l})
	if err != nil {
		return nil, err
	}
	return &s.Opened, nil
}

// open is Location.Open for a command. It may find a table of marks instead of a store.
func open(ctx context.Context, o *Options) (*store, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	s, connect := new(store), (*store).openSQL
	if o.Server.Redis != "" {
		connect = (*store).openRedis
	}
	s.Close = func() {
		if s.conn != nil {
			_ = s.conn.Close()
		}
	}
	if err := connect(s, ctx, o); err != nil {
		s.Close()
		return nil, o.Server.Unanswered(err)
	}
	return s, nil
}

func (s *store) openRedis(ctx context.Context, o *Options) error {
	client, err := o.Server.OpenRedis()
	if err != nil {
		return err
	}
	s.Redis, s.conn = client, client
	defer server.CutOff(ctx, client)()
	text, err := client.Get(ctx, o.Prefix+":layout").Result()
	none := errors.Is(err, redis.Nil)
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "MOVED"),
		none && server.Clustered(ctx, client):
		return server.ErrClustered
	case none:
		return fmt.Errorf(
			"--prefix: nobody has kept records under %q in this Redis: it is another prefix, server or database, or this one was emptied", o.Prefix)
	case err != nil:
		return fmt.Errorf("--redis: %w", err)
	}
	opts, err := o.layout(text)
	if err != nil {
		return err
	}
	s.Store, err = redisadapter.New(ctx, client, opts)
	switch {
	case err != nil && server.Clustered(ctx, client):
		return server.ErrClustered // the record of the layout is in a slot of this node
	case err != nil:
		return fmt.Errorf("--redis: %w", err)
	}
	s.Name, s.Layout, s.Window = "redis "+opts.Layout.String(), opts.Layout, opts.Window
	return nil
}

// layout reads the settings with which the keys were written. The text is the layout record: a
// header, and then lines with a name and a value; see redisadapter's layout.go. New compares the
// settings again.
func (o *Options) layout(text string) (redisadapter.Options, error) {
	// Risky settings of the server are for doctor to report: an operator needs these commands most
	// when the server loses keys.
	opts := redisadapter.Options{Prefix: o.Prefix, AllowEviction: true, Secret: o.Secret,
		OnFinding: func(preflight.Finding) {}}
	set := make(map[string]string)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		set[name] = value
	}
	if wrapper := set["wrapped_by"]; wrapper != "" {
		return opts, fmt.Errorf(
			"--prefix: the keys of %q are claimed through the store %q, which may keep some of them elsewhere: they cannot be looked into",
			o.Prefix, wrapper)
	}
	switch set["layout"] {
	case "full", "rich", "seen_only": // the last two are old names
		if o.Secret != nil {
			return opts, fmt.Errorf(
				"--secret-env: the keys of %q have the layout %v, which needs none", o.Prefix,
				redisadapter.Full)
		}
		opts.Layout = redisadapter.Full
		return opts, nil
	case "compact", "mixed":
		opts.Layout = redisadapter.Compact
	default:
		return opts, fmt.Errorf(
			"--prefix: the layout of the keys of %q is not known to this version", o.Prefix)
	}
	ms, err := strconv.ParseInt(set["window_ms"], 10, 64)
	shards, bad := strconv.Atoi(set["shards"])
	switch {
	case err != nil || bad != nil:
		return opts, fmt.Errorf("--prefix: the record of the layout of %q is damaged", o.Prefix)
	case o.Secret == nil:
		return opts, fmt.Errorf("--secret-env is missing: the keys of %q have the layout %v",
			o.Prefix, opts.Layout)
	}
	opts.Window = time.Duration(ms) * time.Millisecond
	// The largest number of keys that gives this many shards.
	const most = 1 << 40
	opts.ExpectedKeys = sort.Search(most, func(i int) bool {
		return redisadapter.Options{Layout: opts.Layout, ExpectedKeys: i + 1}.Shards() > shards
	})
	return opts, nil
}

func (s *store) openSQL(ctx context.Context, o *Options) error {
	db, err := o.Server.OpenSQL(true)
	if err != nil {
		return err
	}
	dialect := o.Server.Dialect()
	s.db, s.conn, s.Name = db, db, dialect.String()
	if o.Marks {
		s.Name += " marks"
		s.marks, err = findMarks(ctx, db, sqladapter.Config{Dialect: dialect,
			Namespace: o.Namespace, Schema: o.Schema, Table: o.Table})
		return cli.Named(err)
	}
	opened, err := sqlstore.New(db,
		sqlstore.Options{Dialect: dialect, Schema: o.Schema, Table: o.Table})
	if err != nil {
		return cli.Named(err)
	}
	err = opened.Check(ctx)
	var level *migration.LevelError
	missing := errors.As(err, &level) && level.Has == 0
	switch {
	case missing && s.useMarks(ctx, o):
		return nil
	case missing && s.ledger(ctx, o) != nil:
		return fmt.Errorf("--sql: %w; but the database has a table of marks: inspect and explain look into it for KEY --namespace NAME, and marks are settled", err)
	case missing:
		return fmt.Errorf(
			"--sql: %w; is there another --table, --schema or database? onceward migrate --kind store makes one", err)
	case err != nil:
		return fmt.Errorf("--sql: %w", err)
	}
	s.Store = opened
	return nil
}

// clocks are expressions for a database's time, in milliseconds since 1970.
var clocks = map[sqladapter.Dialect]string{
	sqladapter.Postgres: `SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint`,
	sqladapter.MySQL:    `SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000`,
	sqladapter.SQLite:   `SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`,
}

// now reads the store's clock.
func (s *store) now(ctx context.Context, o *Options) (time.Time, error) {
	if s.Redis != nil {
		return s.Redis.Time(ctx).Result()
	}
	var ms int64
	err := s.db.QueryRowContext(ctx, clocks[o.Server.Dialect()]).Scan(&ms)
	return time.UnixMilli(ms), err
}

// list returns a page. If irreversible is set, the page has only keys past their point of no
// return. Only Redis counts the keys that were looked at.
func (s *store) list(ctx context.Context, cursor string, irreversible bool,
	states ...driver.State) (p redisadapter.Page, err error) {
	if r, ok := s.Store.(*redisadapter.Store); ok {
		return r.List(ctx, redisadapter.ListOptions{Cursor: cursor, Scan: pageScan,
			Time: pageTime, States: states, Irreversible: irreversible})
	}
	lister, ok := s.Store.(console.Lister)
	if !ok {
		return p, fmt.Errorf("%s cannot be listed", s.Name)
	}
	p.Cursor, p.Foreign, err = lister.Keys(ctx, cursor, 0, states,
		func(id driver.ID, r dedup.Record) {
			if !irreversible || r.Irreversible {
				p.Entries = append(p.Entries, redisadapter.Entry{ID: id, Record: r})
			}
		})
	return p, err
}
