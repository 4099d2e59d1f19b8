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
	// Schema of the tables, in a database.
	Schema string
	// Layout of the keys, in Redis.
	Layout redisadapter.Layout
	// For is how long both sides are measured, together.
	For time.Duration
	// Window is how long keys live that nobody removes, in Redis.
	Window time.Duration
	// Workers are how many operations are under way at most, Batch the messages of each.
	Workers, Batch int
	// Rate is messages a second that are due; 0 is full speed.
	Rate float64
	// Dup is the share of duplicates.
	Dup float64
	// Result is the size of a stored result, in bytes.
	Result int
	// MaxKeys bounds what is written, on both sides together.
	MaxKeys int
	// Yes asks no question, Force passes a server that is full, or evicts.
	Yes, Force bool
	// JSON writes for programs.
	JSON bool

	layout string
}

const (
	defaultFor     = 10 * time.Second
	defaultWorkers = 16
	defaultMaxKeys = 1_000_000
	leastWindow    = 5 * time.Minute

	maxWorkers = 4096
	maxBatch   = 1024
	maxResult  = 1 << 20
	maxRate    = 1e7
	leastFor   = 100 * time.Millisecond
	fewestKeys = 100
	mostKeys   = 100_000_000
)

// Command returns the command.
func Command() *cli.Command { return new(Options).command() }

func (o *Options) command() *cli.Command {
	return &cli.Command{
		Use: "bench", Short: "Measure messages a second through a Redis or a database, next to its limit",
		Long: `Measures how many messages a second a server takes through this library, and how long each waits,
in turn with its limit: the same writes without the library, through the same client. In Redis a
message is a claim and its completion; in a database it is a record in a transaction of its own,
or with --batch of the batch. Effects do nothing.

It loads the server: whoever uses it meanwhile waits longer. It writes below a prefix, or into
tables, that have a random name, and removes them when it ends, also when it is interrupted. A second
interrupt ends it at once, and the name that it has printed says what is left. A Redis that evicts,
or has more than 80 % of maxmemory in use, is refused.

Without --rate it goes at full speed: each worker sends when it has its answer. With --rate messages
are due at fixed times, and wait from then on: a server that stalls shows.`,
		Example: "onceward bench --redis redis://127.0.0.1:6379 --layout compact --batch 64 --dup 5%",
		Exits: map[int]string{cli.No: "messages have failed, or something is left on the server",
			cli.Usage: "wrong usage, no confirmation, or a server that cannot be used"},
		Flags: o.flags,
		Check: func([]string) error { return o.check() },
		Run:   o.run,
		Hide:  o.Server.Hide,
	}
}

func (o *Options) flags(f *cli.Flags) {
	o.Server.Flags(f)
	f.StringVar(&o.Schema, "schema", "", "`schema` of the tables (default the connection's own)")
	f.ChoiceVar(&o.layout, "layout", "", "`layout` of the keys in Redis (default full)", "full", "compact")
	f.DurationVar(&o.For, "for", defaultFor, "`time` of measuring, in all")
	f.DurationVar(&o.Window, "window", 0,
		"`window` of the keys in Redis: when they expire at the latest, compact after two (default 5m, or twice --for)")
	f.IntVar(&o.Workers, "workers", 0,
		fmt.Sprintf("`number` of operations that are under way at most (default %d; SQLite 1)",
			defaultWorkers))
	f.IntVar(&o.Batch, "batch", 1, "`messages` of an operation: 1, or those of a batch")
	f.Float64Var(&o.Rate, "rate", 0, "`messages` a second that are due (default full speed)")
	f.ShareVar(&o.Dup, "dup", 0, "`share` of the messages that are duplicates, as in 0.05 or 5%")
	f.IntVar(&o.Result, "result", 0, "`bytes` of a stored result (default none)")
	f.IntVar(&o.MaxKeys, "max-keys", defaultMaxKeys,
		"end when so many `keys` have been written, by both sides together")
	f.BoolVar(&o.Force, "force", false,
		"load also a Redis that evicts, or has more than 80 % of maxmemory in use")
	f.BoolVar(&o.Yes, "yes", false, "do not ask, where the server is on another machine")
	f.BoolVar(&o.JSON, "json", false, "write JSON")
}

// check finds the first flag that makes no sense, and fills in defaults.
func (o *Options) check() error {
	if err := o.Server.Check(); err != nil {
		return err
	}
	o.defaults()
	inRedis := o.Server.Redis != ""
	switch {
	case inRedis && o.Schema != "":
		return errors.New("--schema needs --sql")
	case !inRedis && (o.layout != "" || o.Window != 0 || o.Force):
		return errors.New("--layout, --window and --force need --redis")
	case o.For < leastFor:
		return fmt.Errorf("--for is %v; it must be at least %v", o.For, leastFor)
	case inRedis && o.Window < max(o.For, lease):
		return fmt.Errorf("--window is %v; it must be at least --for and %v, or keys are gone before their duplicates come", o.Window, lease)
	case o.Workers < 1 || o.Workers > maxWorkers:
		return fmt.Errorf("--workers is %d; 1 to %d are possible", o.Workers, maxWorkers)
	case o.Batch < 1 || o.Batch > maxBatch:
		return fmt.Errorf("--batch is %d; 1 to %d are possible", o.Batch, maxBatch)
	case !(o.Rate >= 0 && o.Rate <= maxRate):
		return fmt.Errorf("--rate is %g; 0 (full speed) to %g is possible", o.Rate, maxRate)
	case !(o.Dup >= 0 && o.Dup < 1):
		return fmt.Errorf("--dup is %g; 0 to below 1 (100%%) is a share of duplicates", o.Dup)
	case o.Result < 0 || o.Result > maxResult:
		return fmt.Errorf("--result is %d; 0 to %d bytes are possible", o.Result, maxResult)
	case o.MaxKeys < o.leastKeys() || o.MaxKeys > mostKeys:
		return fmt.Errorf("--max-keys is %d; with this --for and --batch %d to %d are possible",
			o.MaxKeys, o.leastKeys(), mostKeys)
	}
	if err := o.readLayout(); err != nil {
		return err
	}
	if local, err := o.Server.Local(); err != nil {
		return err
	} else if o.JSON && !o.Yes && !local {
		return errors.New("--json needs --yes for a server on another machine: a question is no JSON")
	}
	return o.checkSchema()
}

// leastKeys are some batches for warming up, and for every turn.
func (o *Options) leastKeys() int {
	return max(fewestKeys, warmShare*o.Batch, 4*o.rounds()*o.Batch)
}

func (o *Options) defaults() {
	if o.Workers == 0 {
		o.Workers = defaultWorkers
		if o.Server.SQL != "" && o.Server.Dialect() == sqladapter.SQLite {
			o.Workers = 1
		}
	}
	if o.Server.Redis != "" && o.Window == 0 {
		o.Window = max(leastWindow, 2*o.For)
	}
	o.Server.MinPool = o.Workers // the bare side has a connection for each
}

func (o *Options) readLayout() error {
	if o.layout != redisadapter.Compact.String() {
		return nil
	}
	if o.Layout = redisadapter.Compact; o.Result > 0 {
		return fmt.Errorf("--result: the layout %v keeps no results", o.Layout)
	}
	return nil
}

// bucketed tells that many keys share a set, which is planned by their number.
func (o *Options) bucketed() bool { return o.Layout == redisadapter.Compact }

// checkSchema asks sqladapter's own rule.
func (o *Options) checkSchema() error {
	if o.Server.SQL == "" {
		return nil
	}
	_, err := sqladapter.New(sqladapter.Config{Dialect: o.Server.Dialect(), Namespace: "bench",
		Schema: o.Schema})
	return cli.Named(err)
}
