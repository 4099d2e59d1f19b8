package keys

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/redisadapter"
)

// Place is where a store is, by the flags of all commands that look into one.
type Place struct {
	Server server.Options
	// Prefix and Secret are of the store in Redis.
	Prefix string
	Secret []byte
	// Schema and Table are of the store in a database.
	Schema, Table string

	secretEnv string
}

// Flags registers the flags.
func (p *Place) Flags(f *cli.Flags) {
	p.Server.Flags(f)
	f.StringVar(&p.Prefix, "prefix", redisadapter.DefaultPrefix, "`prefix` of the keys in Redis")
	f.StringVar(&p.secretEnv, "secret-env",
		"", "`variable` of the environment that holds the secret of the layout compact")
	f.StringVar(&p.Schema, "schema", "", "`schema` of the table (default the connection's own)")
	f.StringVar(&p.Table, "table", "",
		"`table` of the store (default onceward_claims, and onceward_marks where --marks is given)")
	f.Setting("prefix", "secret-env", "schema", "table")
}

// Check reads what the flags stand for, and connects to nothing. Errors name the flag.
func (p *Place) Check() error {
	if err := p.Server.Check(); err != nil {
		return err
	}
	if p.secretEnv != "" {
		secret := os.Getenv(p.secretEnv)
		if secret == "" {
			return fmt.Errorf("--secret-env: the environment has no %s", p.secretEnv)
		}
		p.Secret = []byte(secret)
	}
	inRedis := p.Server.Redis != ""
	switch {
	case inRedis && (p.Table != "" || p.Schema != ""):
		return errors.New("--table and --schema need --sql")
	case !inRedis && (p.Secret != nil || p.Prefix != redisadapter.DefaultPrefix):
		return errors.New("--prefix and --secret-env need --redis")
	}
	return nil
}

// Opened is a store that is there.
type Opened struct {
	// Store lists its keys, too; see console.Lister.
	Store dedup.Store
	// Name says what it is.
	Name string
	// Window is the one for all its keys, or zero.
	Window time.Duration
	// Close disconnects.
	Close func()
}

// Open connects, and makes nothing: a prefix or a table that nobody has used is an error.
func (p *Place) Open(ctx context.Context) (*Opened, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	s, err := open(ctx, &Options{Place: *p})
	if err != nil {
		return nil, p.Server.Unanswered(err)
	}
	return &Opened{Store: s.Store, Name: s.title(), Window: s.window, Close: s.close}, nil
}
