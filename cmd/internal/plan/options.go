package plan

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/onceward/onceward/cmd/internal/cli"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter"
)

// Options are the flags of the command.
type Options struct {
	Rate                float64
	Window              time.Duration
	Dup                 float64
	Result              int
	Key                 int
	Fingerprint, Origin bool
	Prefix              string
	Spare               float64
	FalsePositives      float64
	JSON                bool
}

const (
	// DefaultSpare is Options.Spare unless --spare says otherwise.
	DefaultSpare = 0.3
	// DefaultFalsePositives is Options.FalsePositives unless --bloom says otherwise.
	DefaultFalsePositives = 1e-3

	maxResult = 512 << 20 // of a value in Redis, in bytes
	maxKey    = 255       // of package dedup
	maxKeys   = 4e9       // of redisadapter.Options.ExpectedKeys, with the spare
)

// Command returns the command.
func Command() *cli.Command { return new(Options).command() }

func (o *Options) command() *cli.Command {
	return &cli.Command{
		Use: "plan", Short: "Reckon memory, rows and odds for a rate and a window",
		Long: `Reckons the memory that Redis needs with each layout, Bloom filters, rows and bytes of SQL, and
how likely a new key is taken for done. It asks no server.

Bytes a key are those of Redis 7.0 with a 64-bit jemalloc of quantum 16, which is Debian's. The
jemalloc that Redis itself brings takes up to a tenth less. Full keeps a window of keys, compact
up to two. "maxmemory" has the spare on top, and 16 MiB for the server.`,
		Example: "onceward plan --rate 2000 --window 3d --dup 5% --result 200",
		Exits:   map[int]string{cli.Usage: "wrong usage"},
		Flags:   o.flags,
		Check:   func([]string) error { return o.check() },
		Run:     o.run,
	}
}

func (o *Options) flags(f *cli.Flags) {
	f.Float64Var(&o.Rate, "rate", 0,
		"`messages` a second, duplicates included, as a mean over the window")
	f.DurationVar(&o.Window, "window", 0, "window of the Deduper, as in 3d")
	f.Require("rate", "window")
	f.ShareVar(&o.Dup, "dup", 0, "`share` of the messages that are duplicates, as in 0.05 or 5%")
	f.IntVar(&o.Result, "result", 0, "mean `bytes` of a stored result")
	f.IntVar(&o.Key, "key", 0,
		"mean `bytes` of a key; shows also what SET NX of the key itself would take")
	f.BoolVar(&o.Fingerprint, "fingerprint",
		false, "claims carry a fingerprint (dedup.WithFingerprint)")
	f.BoolVar(&o.Origin, "origin", false,
		"claims carry an origin, as those of the Kafka adapters do")
	f.StringVar(&o.Prefix, "prefix", redisadapter.DefaultPrefix, "`prefix` of the keys in Redis")
	f.ShareVar(&o.Spare, "spare", DefaultSpare, "`share` to add to what is reckoned")
	f.ShareVar(&o.FalsePositives, "bloom", DefaultFalsePositives,
		"`share` of new keys that a Bloom filter may take for known")
	f.BoolVar(&o.JSON, "json", false, "write JSON")
}

// check finds the first invalid flag.
func (o *Options) check() error {
	switch {
	case !(o.Rate > 0) || math.IsInf(o.Rate, 0):
		return errors.New("--rate is missing, or not positive: messages a second")
	case o.Window < 100*time.Millisecond:
		return errors.New("--window is missing, or below 100ms")
	case !(o.Dup >= 0 && o.Dup < 1):
		return fmt.Errorf("--dup is %g; 0 to below 1 (100%%) is a share of duplicates", o.Dup)
	case o.Result < 0 || o.Result > maxResult:
		return fmt.Errorf("--result is %d; 0 to %d bytes are possible", o.Result, maxResult)
	case o.Key < 0 || o.Key > maxKey:
		return fmt.Errorf("--key is %d; a key has 1 to %d bytes", o.Key, maxKey)
	case !(o.Spare >= 0 && o.Spare <= 10):
		return fmt.Errorf("--spare is %g; 0 to 10 (1000%%) is possible", o.Spare)
	case !(o.FalsePositives >= 1e-6 && o.FalsePositives <= 0.1):
		return fmt.Errorf("--bloom is %g; 0.000001 to 0.1 is possible", o.FalsePositives)
	}
	switch keys := o.keys(); {
	case keys < 1:
		return fmt.Errorf("--rate, --dup and --window make %.2g new keys a window: there is nothing to plan", keys)
	case keys*(1+o.Spare) > maxKeys:
		return fmt.Errorf("--rate, --dup, --window and --spare make %.3g new keys a window; up to %.0e can be planned for one deployment", keys*(1+o.Spare), maxKeys)
	}
	if problem := redisscript.PrefixProblem(o.Prefix); problem != "" {
		return fmt.Errorf("--prefix %s", problem)
	}
	return nil
}

// newRate returns the number of new keys per second.
func (o *Options) newRate() float64 { return o.Rate * (1 - o.Dup) }

// keys returns the number of new keys per window.
func (o *Options) keys() float64 { return o.newRate() * o.Window.Seconds() }
