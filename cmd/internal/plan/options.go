package plan

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/onceward/onceward/cmd/internal/flags"
	"github.com/onceward/onceward/redisadapter"
)

// Options are the flags of the command.
type Options struct {
	// Rate is messages a second, as a mean over the window.
	Rate float64
	// Window is that of the Deduper.
	Window time.Duration
	// Dup is the share of messages that are duplicates, 0 to below 1.
	Dup float64
	// Result is the mean size of a stored result, in bytes; 0 for none.
	Result int
	// Key is the mean length of a key, in bytes, for the comparison with a key of your own
	// making; 0 for no comparison.
	Key int
	// Fingerprint and Origin tell whether records carry them.
	Fingerprint, Origin bool
	// Prefix begins the names in Redis.
	Prefix string
	// Spare is what is added to what is reckoned, as a share of it.
	Spare float64
	// FalsePositives is the goal of a Bloom filter.
	FalsePositives float64
	// JSON writes the plan for programs.
	JSON bool
}

const (
	// DefaultSpare is Options.Spare unless -spare says otherwise.
	DefaultSpare = 0.3
	// DefaultFalsePositives is Options.FalsePositives unless -bloom says otherwise.
	DefaultFalsePositives = 1e-3

	maxResult = 512 << 20 // of a value in Redis
	maxKey    = 255       // of package dedup
	maxKeys   = 4e9       // of redisadapter.Options.ExpectedKeys, with the spare
)

const usage = `Usage: onceward plan -rate MESSAGES -window DURATION [-dup SHARE] [-result BYTES] [flags]

Reckons memory of Redis for each layout, Bloom filters, SQL rows and bytes, and the odds of
taking a new key for done. It asks no server.

Bytes a key are of Redis 7.0 with a 64-bit jemalloc of quantum 16 (Debian's); the one that
Redis brings along takes up to a tenth less. Full keeps a window of keys, compact up
to two. "maxmemory" has the spare on top, and 16 MiB for the server.

Exit code: 0 success; 2 wrong flags.

Flags:
`

// ParseOptions reads the flags. flag.ErrHelp is returned after usage has been written to out; any
// other error names the flag.
func ParseOptions(args []string, out io.Writer) (Options, error) {
	var o Options
	f := flag.NewFlagSet("plan", flag.ContinueOnError)
	f.Float64Var(&o.Rate, "rate", 0,
		"`messages` a second, duplicates included, as a mean over the window")
	f.DurationVar(&o.Window, "window", 0, "window of the Deduper, as in 72h")
	flags.Share(f, &o.Dup, "dup", 0,
		"`share` of the messages that are duplicates, as in 0.05 or 5%")
	f.IntVar(&o.Result, "result", 0, "mean `bytes` of a stored result (default none)")
	f.IntVar(&o.Key, "key", 0,
		"mean `bytes` of a key: shows beside what SET NX of the key itself would take")
	f.BoolVar(&o.Fingerprint, "fingerprint",
		false, "claims carry a fingerprint (dedup.WithFingerprint)")
	f.BoolVar(&o.Origin, "origin", false,
		"claims carry an origin, as those of the Kafka adapters do")
	f.StringVar(&o.Prefix, "prefix", redisadapter.DefaultPrefix, "`prefix` of the keys in Redis")
	flags.Share(f, &o.Spare, "spare", DefaultSpare,
		"`share` to add to what is reckoned, as in 0.3 or 30%")
	flags.Share(f, &o.FalsePositives, "bloom", DefaultFalsePositives,
		"goal for the `share` of new keys that a Bloom filter does not know for new")
	f.BoolVar(&o.JSON, "json", false, "write JSON")
	if err := flags.Parse(f, args, usage, out); err != nil {
		return o, err
	}
	return o, o.check()
}

// check finds the first flag that makes no sense.
func (o *Options) check() error {
	switch {
	case !(o.Rate > 0) || math.IsInf(o.Rate, 0):
		return errors.New("-rate is missing, or not positive: messages a second")
	case o.Window < 100*time.Millisecond:
		return errors.New("-window is missing, or below 100ms")
	case !(o.Dup >= 0 && o.Dup < 1):
		return fmt.Errorf("-dup is %g; 0 to below 1 (100%%) is a share of duplicates", o.Dup)
	case o.Result < 0 || o.Result > maxResult:
		return fmt.Errorf("-result is %d; 0 to %d bytes are possible", o.Result, maxResult)
	case o.Key < 0 || o.Key > maxKey:
		return fmt.Errorf("-key is %d; a key has 1 to %d bytes", o.Key, maxKey)
	case !(o.Spare >= 0 && o.Spare <= 10):
		return fmt.Errorf("-spare is %g; 0 to 10 (1000%%) is possible", o.Spare)
	case !(o.FalsePositives >= 1e-6 && o.FalsePositives <= 0.1):
		return fmt.Errorf("-bloom is %g; 0.000001 to 0.1 is possible", o.FalsePositives)
	}
	switch keys := o.keys(); {
	case keys < 1:
		return fmt.Errorf("-rate, -dup and -window make %.2g new keys a window: there is nothing to plan", keys)
	case keys*(1+o.Spare) > maxKeys:
		return fmt.Errorf("-rate, -dup, -window and -spare make %.3g new keys a window; up to %.0e can be planned for one deployment", keys*(1+o.Spare), maxKeys)
	}
	if problem := o.prefixProblem(); problem != nil {
		return fmt.Errorf("-prefix: %w", problem)
	}
	return nil
}

// prefixProblem asks redisadapter's own rule.
func (o *Options) prefixProblem() error {
	if o.Prefix == "" || len(o.Prefix) > 64 ||
		strings.Trim(o.Prefix,
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "" {
		return fmt.Errorf("%q is not 1-64 bytes of letters, digits, '_', '.', '-'", o.Prefix)
	}
	return nil
}

// newRate is new keys a second.
func (o *Options) newRate() float64 { return o.Rate * (1 - o.Dup) }

// keys is new keys a window.
func (o *Options) keys() float64 { return o.newRate() * o.Window.Seconds() }
