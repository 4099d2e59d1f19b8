// Package bench is the command onceward bench: how many messages per second a server takes through
// this library, and how long each message takes.
package bench

import (
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/cmd/internal/server"
	"github.com/onceward/onceward/redisadapter"
	"github.com/onceward/onceward/sqladapter"
)

// Options are the flags of the command.
type Options struct {
	Server server.Options
	Schema string
	// Layout is the layout of the keys in Redis.
	Layout     redisadapter.Layout
	For        time.Duration
	Workers    int
	Dup        float64
	MaxKeys    int
	Yes, Force bool
	JSON       bool

	layout string
}

const (
	defaultFor     = 10 * time.Second
	defaultWorkers = 16
	defaultMaxKeys = 1_000_000

	maxWorkers = 4096
	leastFor   = 100 * time.Millisecond
	mostKeys   = 10_000_000
)

// Command returns the command.
func Command() *cli.Command { return new(Options).command() }

func (o *Options) command() *cli.Command {
	return &cli.Command{
		Use: "bench", Short: "Measure messages a second through a Redis or a database",
		Long: `Measures how many messages a second a server takes through this library, and how long each waits. In
Redis a message is a dedup.Do, in a database a Ledger.Do in a transaction of its own. Effects do
nothing. Each worker sends when it has its answer, so a server that stalls shows in max alone.

It loads the server: whoever uses it meanwhile waits longer. It writes below a prefix, or into
tables, that have a random name, and removes them when it ends, also when it is interrupted. A second
interrupt ends it at once, and the name that it has printed says what is left. A Redis that evicts,
or has more than 80 % of maxmemory in use, is refused.`,
		Example: "onceward bench --redis redis://127.0.0.1:6379 --layout compact --dup 5%",
		Exits: map[int]string{cli.No: "messages have failed, or something is left on the server",
			cli.Usage: "wrong usage, no confirmation, or a server that cannot be used"},
		Flags: o.flags,
		Check: o.check,
		Run:   o.run,
		Hide:  o.Server.Hide,
	}
}

func (o *Options) flags(f *cli.Flags) {
	o.Server.Flags(f)
	f.StringVar(&o.Schema, "schema", "", "`schema` of the tables (default the connection's own)")
	f.ChoiceVar(&o.layout, "layout", "", "`layout` of the keys in Redis (default full)", "full",
		"compact")
	f.DurationVar(&o.For, "for", defaultFor, "`time` of measuring")
	f.IntVar(&o.Workers, "workers", 0,
		fmt.Sprintf("`number` of messages that are under way at most (default %d; SQLite 1)",
			defaultWorkers))
	f.ShareVar(&o.Dup, "dup", 0, "`share` of the messages that are duplicates, as in 0.05 or 5%")
	f.IntVar(&o.MaxKeys, "max-keys", defaultMaxKeys, "end when so many `keys` have been written")
	f.BoolVar(&o.Force, "force", false,
		"load also a Redis that evicts, or has more than 80 % of maxmemory in use")
	f.BoolVar(&o.Yes, "yes", false, "do not ask, where the server is on another machine")
	f.BoolVar(&o.JSON, "json", false, "write JSON")
}

// check finds the first invalid flag, and fills in defaults.
func (o *Options) check([]string) error {
	if err := o.Server.Check(); err != nil {
		return err
	}
	if o.Workers == 0 {
		o.Workers = defaultWorkers
		if o.Server.SQL != "" && o.Server.Dialect() == sqladapter.SQLite {
			o.Workers = 1
		}
	}
	inRedis := o.Server.Redis != ""
	switch {
	case inRedis && o.Schema != "":
		return errors.New("--schema needs --sql")
	case !inRedis && (o.layout != "" || o.Force):
		return errors.New("--layout and --force need --redis")
	case o.For < leastFor:
		return fmt.Errorf("--for is %v; it must be at least %v", o.For, leastFor)
	case o.Workers < 1 || o.Workers > maxWorkers:
		return fmt.Errorf("--workers is %d; 1 to %d are possible", o.Workers, maxWorkers)
	case !(o.Dup >= 0 && o.Dup < 1):
		return fmt.Errorf("--dup is %g; 0 to below 1 (100%%) is a share of duplicates", o.Dup)
	case o.MaxKeys < 1 || o.MaxKeys > mostKeys:
		return fmt.Errorf("--max-keys is %d; 1 to %d are possible", o.MaxKeys, mostKeys)
	}
	if o.layout == redisadapter.Compact.String() {
		o.Layout = redisadapter.Compact
	}
	if local, err := o.Server.Local(); err != nil {
		return err
	} else if o.JSON && !o.Yes && !local {
		return errors.New("--json needs --yes for a server on another machine: a question is not JSON")
	}
	if inRedis {
		return nil
	}
	// sqladapter has a rule for the schema.
	_, err := sqladapter.New(sqladapter.Config{Dialect: o.Server.Dialect(), Namespace: "bench",
		Schema: o.Schema})
	return cli.Named(err)
}
