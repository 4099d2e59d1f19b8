package owned

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"math"
	"time"

	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// Defaults of Options.
const (
	DefaultPrefix   = "owp"
	DefaultInFlight = 4096
)

const (
	// minSecret bounds Options.Secret, maxKeyID Options.KeyID, maxExpected Options.ExpectedKeys
	// and maxInFlight Options.InFlight.
	minSecret   = 16
	maxKeyID    = 64
	maxExpected = 4_000_000_000
	maxInFlight = 1 << 20
	// minLease is ten times what a round trip may take on a good day.
	minLease = 100 * time.Millisecond
	// leasesPerSlice is how many leases must fit into a generation. Each renewal brings the
	// filter's clock, which may be late by up to one slice.
	leasesPerSlice = 4
	// leaseRequests is how many of a request's leases must fit into the partition's lease. The
	// answer to a begin may then be late by two such leases and still be a grant.
	leaseRequests = 3
	// keysPerBucket is how many members a bucket is planned to have. To look for one member, an ask
	// reads the whole bucket. For a foreign ask, Lua searches the bucket, and hashes all of it.
	keysPerBucket = 128
	// foldsPerSlice is how many fresh sets a generation is planned to fill. Each fold then adds
	// some twenty members to a bucket. The members of one set take 56 bytes each, which is 2.5 for
	// each key of a window of four slices. setMembers is the least planned size of a fresh set.
	foldsPerSlice = 6
	setMembers    = 16 << 10
	// maxSpan bounds Window and Hold to ten years, as dedup.Config does.
	maxSpan = 10 * 365 * 24 * time.Hour
)

// Options of [Init] and [New]. All processes of one prefix have the same Secret, KeyID, Window,
// Hold, Slices and ExpectedKeys: New refuses others.
type Options struct {
	// Prefix begins the name of every key that this package writes: 1-64 bytes of letters, digits,
	// '_', '.', '-'. It must differ from that of the inner store. Default DefaultPrefix.
	Prefix string
	// Secret is the key of the digests by which marks are stored and filtered, so that nobody who
	// chooses keys can make two of them collide. It must have at least 16 random bytes. Required.
	Secret []byte
	// KeyID names the Secret in snapshots: at most 64 bytes of letters, digits, '_', '.', '-'.
	// Default: 8 hex digits of a digest of the secret.
	KeyID string
	// Window is [dedup.Config].Window, and Hold is [dedup.Config].Hold. All keys have the same
	// Window and Hold: a call with a longer Hold or another Window is refused. Both are required,
	// and each is at most ten years.
	Window, Hold time.Duration
	// Lease is how long a partition is held without renewal. After a crash of its owner, nobody
	// works on the partition for that long. At least three times [dedup.Config].LeaseTTL, and at
	// most a quarter of a generation, which is (Window+Hold)/Slices. At least 100 ms. Required.
	Lease time.Duration
	// ExpectedKeys is how many keys end in one partition within a Window, 1 to 4e9. With more keys,
	// the filter and the sets take more memory and more time, but stay correct. Required.
	ExpectedKeys int
	// InFlight bounds the keys of a partition that have begun without a claim of the inner store,
	// because after a crash these can run a second time. Keys above the bound are claimed at the
	// inner store. Default DefaultInFlight, at most 2^20.
	InFlight int
	// Slices is the number of generations that Window+Hold is cut into, 1 to [bloom.MaxSlices].
	// Default [bloom.DefaultSlices].
	Slices int
	// FalsePositives is the filter's goal for the share of new keys that are claimed anyway.
	// Default [bloom.DefaultFalsePositives].
	FalsePositives float64
	// MaxBytes bounds the bits of one partition's filter; see [bloom.Options]. Default twice the
	// plan.
	MaxBytes int64
	// Snapshots keeps filters across processes, so that an owner need not read every mark when it
	// begins. Default nil: filters are loaded from the marks.
	Snapshots Snapshots
	// TakeOverOlderGeneration lets Acquire take a partition at once from an owner with an older
	// Partition.Generation, instead of waiting for its lease to end. The older owner learns of it
	// from its next batch write. This adds "a rebalance while a handler still runs" to the ways in
	// which an effect can run twice. Default false.
	TakeOverOlderGeneration bool
	// Observer has two hooks that the Store calls. The goroutine that claims calls Filtered. A
	// goroutine of its own calls FilterState, in order. Both hooks may call the Store and its
	// partitions, except for [Store.Close]. The other hooks are the Deduper's. Default: nobody.
	Observer dedup.Observer
	// Logger gets warnings: partitions lost, data lost, mappings that change. Default: discarded.
	Logger *slog.Logger
}

// Snapshots keeps named blobs: files, or keys of a server; see [Dir] and [InRedis]. A blob is the
// bits of a filter's generation: with the Secret it shows which keys are done, and without it
// nothing. Snapshots only make loading shorter: if a blob is missing, damaged or outdated, the
// marks are read instead. The Logger gets a warning about a damaged blob. Methods may be called
// from several goroutines at once, for names that differ.
type Snapshots interface {
	// Load returns what Store has kept under the name, or an error that is fs.ErrNotExist. The
	// caller reads it to its end at most once, and closes it.
	Load(ctx context.Context, name string) (io.ReadCloser, error)
	// Store replaces what is kept under the name by all that r has, or leaves it as it was. Nobody
	// asks for the blob after keep has passed.
	Store(ctx context.Context, name string, keep time.Duration, r io.Reader) error
}

// complete returns the options with their defaults, or names the first bad one.
func (o Options) complete() (Options, error) {
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	o.InFlight = cmp.Or(o.InFlight, DefaultInFlight)
	o.Slices = cmp.Or(o.Slices, bloom.DefaultSlices)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if problem := script.PrefixProblem(o.Prefix); problem != "" {
		return o, input("Options.Prefix", problem)
	}
	if len(o.Secret) < minSecret {
		return o, input("Options.Secret",
			fmt.Sprintf("has %d bytes; at least %d are needed", len(o.Secret), minSecret))
	}
	if o.KeyID == "" {
		o.KeyID = hex.EncodeToString(derive("key id", o.Secret)[:4])
	}
	if problem := script.PrefixProblem(o.KeyID); problem != "" {
		return o, input("Options.KeyID", problem)
	}
	if err := o.checkTimes(); err != nil {
		return o, err
	}
	if err := o.checkSizes(); err != nil {
		return o, err
	}
	if _, err := bloom.New(o.filter(nil, nil)); err != nil {
		return o, input("Options", "make no filter: "+err.Error())
	}
	return o, nil
}

func (o *Options) checkTimes() error {
	switch {
	case o.Window <= 0 || o.Window > maxSpan:
		return input("Options.Window",
			fmt.Sprintf("is %v; it must be positive and at most %v", o.Window, maxSpan))
	case o.Hold <= 0 || o.Hold > maxSpan:
		return input("Options.Hold",
			fmt.Sprintf("is %v; it must be positive and at most %v", o.Hold, maxSpan))
	case o.Slices < 1 || o.Slices > bloom.MaxSlices:
		return input("Options.Slices",
			fmt.Sprintf("is %d; 1 to %d are possible", o.Slices, bloom.MaxSlices))
	case o.Lease < minLease:
		return input("Options.Lease",
			fmt.Sprintf("is %v; at least %v is needed", o.Lease, minLease))
	case leasesPerSlice*o.Lease > o.slice():
		return input("Options.Lease",
			fmt.Sprintf("is %v, above a quarter of a generation of %v, which is (Window+Hold)/Slices", o.Lease, o.slice()))
	}
	return nil
}

func (o *Options) checkSizes() error {
	switch {
	case o.ExpectedKeys < 1 || int64(o.ExpectedKeys) > maxExpected:
		return input("Options.ExpectedKeys",
			fmt.Sprintf("is %d; the number of keys of a partition in a window is needed, 1 to %d",
				o.ExpectedKeys, int64(maxExpected)))
	case o.InFlight < 1 || o.InFlight > maxInFlight:
		return input("Options.InFlight",
			fmt.Sprintf("is %d; 1 to %d are possible", o.InFlight, maxInFlight))
	}
	return nil
}

// slice returns the length of a generation in whole milliseconds, because servers count in
// milliseconds.
func (o *Options) slice() time.Duration {
	each := (o.Window + o.Hold + time.Duration(o.Slices) - 1) / time.Duration(o.Slices)
	return script.FromMillis(script.Millis(each))
}

// sliceKeys returns how many keys a generation is planned to have.
func (o *Options) sliceKeys() float64 {
	return float64(o.ExpectedKeys) * o.slice().Seconds() / o.Window.Seconds()
}

// buckets returns the number of buckets of a generation.
func (o *Options) buckets() int { return max(1, int(math.Ceil(o.sliceKeys()/keysPerBucket))) }

// setMembers returns how many members a fresh set gets before the next set begins. The full set can
// then be folded.
func (o *Options) setMembers() int { return max(setMembers, int(o.sliceKeys()/foldsPerSlice)) }

// filter returns the options of a partition's filter.
func (o *Options) filter(clock func() time.Duration, tell func(bloom.Event)) bloom.Options {
	return bloom.Options{
		Window: o.slice() * time.Duration(o.Slices), Slices: o.Slices,
		Rate: float64(o.ExpectedKeys) / o.Window.Seconds(), FalsePositives: o.FalsePositives,
		MaxBytes: o.MaxBytes, Secret: derive("filter", o.Secret)[:16], KeyID: o.KeyID, Clock: clock,
		OnEvent: tell,
	}
}

// derive makes a secret for one purpose from Options.Secret.
func derive(purpose string, secret []byte) []byte {
	sum := sha256.Sum256(append([]byte("onceward/owned/1/"+purpose+":"), secret...))
	return sum[:]
}

func input(field, reason string) error { return &driver.InputError{Field: field, Reason: reason} }
