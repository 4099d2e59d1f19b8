package keys

import (
	"errors"
	"fmt"
	"os"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/server"
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
	switch inRedis := l.Server.Redis != ""; {
	case inRedis && (l.Table != "" || l.Schema != ""):
		return errors.New("--table and --schema need --sql")
	case inRedis:
		return l.CheckRedis()
	case l.secretEnv != "" || l.Prefix != redisadapter.DefaultPrefix:
		return errors.New("--prefix and --secret-env need --redis")
	}
	return nil
}
