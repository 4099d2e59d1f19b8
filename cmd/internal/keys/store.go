package keys

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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

// store is the store that the commands read.
type store struct {
	dedup.Store
	// name is the kind of store. layout is empty for a store with a record for each key.
	name   string
	layout redisadapter.Layout
	// window applies to all keys; zero if keys have windows of their own.
	window time.Duration
	// now reads the store's clock.
	now   func(ctx context.Context) (time.Time, error)
	marks *sqladapter.Ledger // used instead of Store
	db    *sql.DB
	redis redis.UniversalClient
	close func()
}

// Close disconnects. It may be called twice.
func (s *store) Close() error {
	s.close()
	return nil
}

// open connects. It creates nothing: neither a layout record nor a table.
func open(ctx context.Context, o *Options) (*store, error) {
	if o.Server.Redis != "" {
		return openRedis(ctx, o)
	}
	return openSQL(ctx, o)
}

func openRedis(ctx context.Context, o *Options) (_ *store, err error) {
	client, err := o.Server.OpenRedis()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = client.Close()
		}
	}()
	defer server.CutOff(ctx, client)()
	text, err := client.Get(ctx, o.Prefix+":layout").Result()
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "MOVED"), errors.Is(err, redis.Nil) &&
		server.Clustered(ctx, client):
		return nil, server.ErrClustered
	case errors.Is(err, redis.Nil):
		return nil, fmt.Errorf(
			"--prefix: nobody has kept records under %q in this Redis: it is another prefix, server or database, or this one was emptied", o.Prefix)
	case err != nil:
		return nil, fmt.Errorf("--redis: %w", err)
	}
	opts, err := o.layout(text)
	if err != nil {
		return nil, err
	}
	opened, err := redisadapter.New(ctx, client, opts)
	switch {
	case err != nil && server.Clustered(ctx, client):
		return nil, server.ErrClustered // the record of the layout is in a slot of this node
	case err != nil:
		return nil, fmt.Errorf("--redis: %w", err)
	}
	return &store{
		Store: opened, redis: client, name: "redis", layout: opts.Layout, window: opts.Window,
		close: func() { _ = client.Close() },
		now:   func(ctx context.Context) (time.Time, error) { return client.Time(ctx).Result() },
	}, nil
}

// layout reads the settings with which the keys were written. The text is the layout record: a
// header, and then lines with a name and a value; see redisadapter's layout.go. New compares the
// settings again.
func (o *Options) layout(text string) (redisadapter.Options, error) {
	// Risky settings of the server are for doctor to report: an operator needs these commands most
	// when the server loses keys.
	opts := redisadapter.Options{Prefix: o.Prefix, AllowEviction: true,
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
		opts.Layout = redisadapter.Full
	case "compact", "mixed":
		opts.Layout = redisadapter.Compact
	default:
		return opts, fmt.Errorf(
			"--prefix: the layout of the keys of %q is not known to this version", o.Prefix)
	}
	if opts.Layout != redisadapter.Compact {
		if o.Secret != nil {
			return opts, fmt.Errorf(
				"--secret-env: the keys of %q have the layout %v, which needs none", o.Prefix,
				opts.Layout)
		}
		return opts, nil
	}
	ms, err := strconv.ParseInt(set["window_ms"], 10, 64)
	shards, bad := strconv.Atoi(set["shards"])
	if err != nil || bad != nil {
		return opts, fmt.Errorf("--prefix: the record of the layout of %q is damaged", o.Prefix)
	}
	if o.Secret == nil {
		return opts, fmt.Errorf("--secret-env is missing: the keys of %q have the layout %v",
			o.Prefix, opts.Layout)
	}
	opts.Window, opts.Secret = time.Duration(ms)*time.Millisecond, o.Secret
	opts.ExpectedKeys = expected(opts.Layout, shards)
	return opts, nil
}

// expected is the largest number of keys that gives this many shards.
func expected(layout redisadapter.Layout, shards int) int {
	const most = 1 << 40
	return sort.Search(most, func(i int) bool {
		return redisadapter.Options{Layout: layout, ExpectedKeys: i + 1}.Shards() > shards
	})
}

// clocks are expressions for a database's time, in milliseconds since 1970.
var clocks = map[sqladapter.Dialect]string{
	sqladapter.Postgres: `SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint`,
	sqladapter.MySQL:    `SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000`,
	sqladapter.SQLite:   `SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`,
}

func openSQL(ctx context.Context, o *Options) (_ *store, err error) {
	db, err := o.Server.OpenSQL(true)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = db.Close()
		}
	}()
	dialect := o.Server.Dialect()
	s := &store{db: db, close: func() { _ = db.Close() }}
	s.now = func(ctx context.Context) (time.Time, error) {
		var ms int64
		err := db.QueryRowContext(ctx, clocks[dialect]).Scan(&ms)
		return time.UnixMilli(ms), err
	}
	if o.Marks {
		s.name = dialect.String() + " marks"
		s.marks, err = findMarks(ctx, db, sqladapter.Config{Dialect: dialect,
			Namespace: o.Namespace, Schema: o.Schema, Table: o.Table})
		return s, cli.Named(err)
	}
	opened, err := sqlstore.New(db,
		sqlstore.Options{Dialect: dialect, Schema: o.Schema, Table: o.Table})
	if err != nil {
		return nil, cli.Named(err)
	}
	var level *migration.LevelError
	err = opened.Check(ctx)
	switch {
	case errors.As(err, &level) && level.Has == 0 && s.named(dialect).useMarks(ctx, o):
		return s, nil
	case errors.As(err, &level) && level.Has == 0 && s.ledger(ctx, o) != nil:
		return nil, fmt.Errorf("--sql: %w; but the database has a table of marks: inspect and explain look into it for KEY --namespace NAME, and marks are settled", err)
	case errors.As(err, &level) && level.Has == 0:
		return nil, fmt.Errorf(
			"--sql: %w; is there another --table, --schema or database? onceward migrate --kind store makes one", err)
	case err != nil:
		return nil, fmt.Errorf("--sql: %w", err)
	}
	s.Store = opened
	return s.named(dialect), nil
}

func (s *store) named(dialect sqladapter.Dialect) *store {
	s.name = dialect.String()
	return s
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
		return p, fmt.Errorf("%s cannot be listed", s.name)
	}
	p.Cursor, p.Foreign, err = lister.Keys(ctx, cursor, 0, states,
		func(id driver.ID, r dedup.Record) {
			if !irreversible || r.Irreversible {
				p.Entries = append(p.Entries, redisadapter.Entry{ID: id, Record: r})
			}
		})
	return p, err
}

// title describes the kind of store and its layout.
func (s *store) title() string {
	if s.name == "redis" {
		return s.name + " " + s.layout.String()
	}
	return s.name
}
