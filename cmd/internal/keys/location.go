package keys

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// Location is where a store is. It holds the flags that all commands share which look into a store.
type Location struct {
	Server server.Options
	// Prefix and Secret are for a store in Redis.
	Prefix string
	Secret []byte
	// Schema and Table are for a store in a database.
	Schema, Table string

	secretEnv string
}

// RedisFlags registers only the flags of a store in Redis.
func (l *Location) RedisFlags(f *cli.Flags) {
	l.Server.RedisFlags(f)
	f.StringVar(&l.Prefix, "prefix", redisadapter.DefaultPrefix, "`prefix` of the keys in Redis")
	f.StringVar(&l.secretEnv, "secret-env",
		"", "`variable` of the environment that holds the secret of the layout compact")
	f.Setting("prefix", "secret-env")
}

// Flags registers the flags.
func (l *Location) Flags(f *cli.Flags) {
	l.RedisFlags(f)
	l.Server.SQLFlags(f)
	server.Exclude(f)
	f.StringVar(&l.Schema, "schema", "", "`schema` of the table (default the connection's own)")
	f.StringVar(&l.Table, "table", "",
		"`table` of the store (default onceward_claims, and onceward_marks where --marks is given)")
	f.Setting("schema", "table")
}

// CheckRedis is Check for a command that has only RedisFlags.
func (l *Location) CheckRedis() error {
	if l.secretEnv != "" {
		if l.Secret = []byte(os.Getenv(l.secretEnv)); len(l.Secret) == 0 {
			return fmt.Errorf("--secret-env: the environment has no %s", l.secretEnv)
		}
	}
	return l.Server.CheckRedis()
}

// Check reads the values of the flags, and connects to nothing. Errors name the flag.
func (l *Location) Check() error {
	if err := l.Server.Check(); err != nil {
		return err
	}
	inRedis := l.Server.Redis != ""
	switch {
	case inRedis && (l.Table != "" || l.Schema != ""):
		return errors.New("--table and --schema need --sql")
	case !inRedis && (l.secretEnv != "" || l.Prefix != redisadapter.DefaultPrefix):
		return errors.New("--prefix and --secret-env need --redis")
	case inRedis:
		return l.CheckRedis()
	}
	return nil
}

// Opened is a store that exists.
type Opened struct {
	// Store can also list its keys; see console.Lister.
	Store dedup.Store
	// Name is the kind of store, and Layout is how it keeps its keys in Redis.
	Name   string
	Layout redisadapter.Layout
	// Window applies to all its keys; zero if keys have windows of their own.
	Window time.Duration
	// Redis is its client; nil for a database.
	Redis redis.UniversalClient
	// Close disconnects.
	Close func()
}

// Open connects, and creates nothing: a prefix or a table that nobody has used is an error.
func (l *Location) Open(ctx context.Context) (*Opened, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	s, err := open(ctx, &Options{Location: *l})
	if err != nil {
		return nil, l.Server.Unanswered(err)
	}
	return &Opened{Store: s.Store, Name: s.title(), Layout: s.layout, Window: s.window,
		Redis: s.redis, Close: s.close}, nil
}

// TakeWindow fills in --window, or compares it with the window that the layout has for all its
// keys.
func (o *Opened) TakeWindow(window *time.Duration) error {
	return takeWindow(window, o.Window)
}

func takeWindow(window *time.Duration, all time.Duration) error {
	switch {
	case all != 0 && *window != 0 && *window != all:
		return fmt.Errorf("--window is %v; the keys of this layout have one of %v", *window, all)
	case *window == 0:
		*window = all
	}
	return nil
}
