package dedup

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/keytext"
)

// Mode is whether a Deduper skips duplicates.
type Mode uint8

const (
	// Enforce skips duplicates, and runs nothing while the store cannot be asked.
	Enforce Mode = iota
	// Observe runs everything, as if there were no Deduper, and tells the Observer what would
	// have been skipped. Claims that would have been won are taken and recorded, so that the
	// report is true. A lost lease cancels no handler, and a record that could not be written
	// causes no error.
	Observe
	// FailOpen is Enforce that runs the effect without a claim while the store cannot be asked,
	// and tells Observer.FailedOpen. It is for effects that may happen twice.
	FailOpen
)

// Config configures a [Deduper]. Namespace, Window and LeaseTTL have no default: they
// are decisions.
type Config struct {
	// Namespace separates deployments that share a store: 1-64 bytes of letters,
	// digits, '_', '.', '-'. Required.
	Namespace string

	// Window is how long a finished key is remembered; a duplicate that arrives later runs
	// again. It must exceed the longest redelivery horizon. Request.Window shortens it for a key.
	// Required, at least LeaseTTL, at most ten years.
	Window time.Duration

	// LeaseTTL is how long a claim lasts without renewal, automatic while a handler runs. So long a
	// crashed owner's key stays in flight, and a call retries its record in an outage. Required, at
	// least 50 ms.
	LeaseTTL time.Duration

	// Hold is how long an unfinished key keeps its attempt count and fence after its lease or
	// release. It must exceed the longest retry backoff. At most ten years. Default: the
	// larger of ten leases and one hour.
	Hold time.Duration

	// Resolve finds out about an uncertain key: an attempt ended after [MarkIrreversible] without
	// saying how. [Resolution] says how it is called and what it answers. Default nil: nobody is
	// asked, and the key is Uncertain until Mark or Forget.
	Resolve func(ctx context.Context, key string, rec Record) (Resolution, error)

	// Wait is how long a call waits for a key in flight elsewhere before it answers InFlight.
	// Its end wakes it, in other processes too if all set Wait and the store is a
	// [driver.Waker]; one call a key polls besides. Default 0.
	Wait time.Duration

	// MaxWaiters bounds the calls that wait at the same time; the next one answers
	// InFlight at once. Default 1000.
	MaxWaiters int

	// StoreTimeout bounds one round trip to the store, and a whole call of two stores (package
	// layered), which may take three. Default: a third of LeaseTTL, at most two seconds. It
	// must be shorter than LeaseTTL.
	StoreTimeout time.Duration

	// ResultLimit bounds a stored result in bytes. A larger one is not kept: the key is
	// recorded as done, and its replay answers ErrNoResult. Default 256 KiB.
	ResultLimit int

	// SeenOnly keeps no results: a duplicate of a Do that returns a value, and Complete with a
	// result, answer ErrNoResult. Some stores require it. All processes of a namespace should
	// agree on it. Default false.
	SeenOnly bool

	// CacheBytes bounds the in-process cache of finished keys: about 106 bytes each, results up
	// to 1 KiB. Another process's Forget goes unnoticed for about a second, or a minute without
	// [driver.ForgetCounter]. At least 64 KiB; default 0, no cache.
	CacheBytes int

	// Mode says what is skipped, and what happens while the store cannot be asked. Default
	// [Enforce].
	Mode Mode

	// Labels stores Request.Label in clear next to the key's digest. The labels of adapters name
	// the request: method, path and Idempotency-Key; provider, endpoint and id of a webhook.
	// Default false.
	Labels bool

	// Observer is told what happens. Default: nobody.
	Observer Observer

	// Logger gets warnings: leases lost, records that could not be written. Keys appear
	// as their ID, in the attribute key_id. Default: discarded.
	Logger *slog.Logger
}

const (
	minLease          = 50 * time.Millisecond
	maxWindow         = 10 * 365 * 24 * time.Hour
	defaultMaxWaiters = 1000
	defaultResultSize = 256 << 10
	maxStoreTimeout   = 2 * time.Second
	minCacheBytes     = 64 << 10
	minDefaultHold    = time.Hour
)

// margin is what a lease is cut short by on its owner's clock: 1 % for the drift of two
// clocks plus 2 ms for timers, as implementations of Redis's distributed lock algorithm
// (Redlock) do.
func margin(lease time.Duration) time.Duration { return lease/100 + 2*time.Millisecond }

// complete returns the configuration with its defaults, or names the first bad field.
func (c Config) complete() (Config, error) {
	c.setDefaults()
	bad := func(field, format string, args ...any) error {
		return &InputError{Field: "Config." + field, Reason: fmt.Sprintf(format, args...)}
	}
	if reason := keytext.NamespaceFault(c.Namespace); reason != "" {
		return c, bad("Namespace", "%s", reason)
	}
	switch {
	case c.Window <= 0:
		return c, bad("Window",
			"is %v; it must be positive, and exceed the longest redelivery horizon", c.Window)
	case c.Window > maxWindow:
		return c, bad("Window", "is %v; at most %v is allowed", c.Window, maxWindow)
	case c.LeaseTTL <= 0:
		return c, bad("LeaseTTL", "is %v; it must be positive", c.LeaseTTL)
	case c.LeaseTTL < minLease:
		return c, bad("LeaseTTL", "is %v; at least %v is needed", c.LeaseTTL, minLease)
	case c.LeaseTTL > c.Window:
		return c, bad("LeaseTTL", "is %v, longer than Window (%v)", c.LeaseTTL, c.Window)
	case c.Hold < 0:
		return c, bad("Hold", "is %v; it must not be negative", c.Hold)
	case c.Hold > maxWindow:
		return c, bad("Hold", "is %v; at most %v is allowed", c.Hold, maxWindow)
	case c.Wait < 0:
		return c, bad("Wait", "is %v; it must not be negative", c.Wait)
	case c.MaxWaiters < 0:
		return c, bad("MaxWaiters", "is %d; it must not be negative", c.MaxWaiters)
	case c.StoreTimeout < 0:
		return c, bad("StoreTimeout", "is %v; it must not be negative", c.StoreTimeout)
	case c.StoreTimeout >= c.LeaseTTL:
		return c, bad("StoreTimeout", "is %v; it must be shorter than LeaseTTL (%v)",
			c.StoreTimeout, c.LeaseTTL)
	case c.ResultLimit < 0:
		return c, bad("ResultLimit", "is %d; it must not be negative", c.ResultLimit)
	case c.CacheBytes < 0:
		return c, bad("CacheBytes", "is %d; it must not be negative", c.CacheBytes)
	case c.CacheBytes > 0 && c.CacheBytes < minCacheBytes:
		return c, bad("CacheBytes", "is %d bytes; at least %d are needed, or 0 for no cache",
			c.CacheBytes, minCacheBytes)
	case c.Mode > FailOpen:
		return c, bad("Mode", "is %d; Enforce, Observe and FailOpen are known", c.Mode)
	}
	return c, nil
}

func (c *Config) setDefaults() {
	if c.Hold == 0 {
		c.Hold = max(10*c.LeaseTTL, minDefaultHold)
	}
	if c.MaxWaiters == 0 {
		c.MaxWaiters = defaultMaxWaiters
	}
	if c.StoreTimeout == 0 {
		c.StoreTimeout = min(c.LeaseTTL/3, maxStoreTimeout)
	}
	if c.ResultLimit == 0 {
		c.ResultLimit = defaultResultSize
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Resolution is what Config.Resolve answers about an uncertain key. It asks the downstream
// whether the effect has happened, best by the Attempt.DownstreamKey that the effect was sent
// with. The zero Resolution, or an error, is "still unknown": the next call asks again.
//
// [Do] and Claim ask, but not in Observe mode; ClaimBatch and Seen never ask. One caller asks at
// a time, in all processes, under a claim that counts as an attempt and that is renewed; others
// find the key in flight. The ctx of Resolve carries that attempt, follows the caller's, and is
// canceled with ErrLeaseLost when the claim is lost; rec has StateUncertain. A panic leaves the
// key uncertain and is passed on.
type Resolution = driver.Resolution

// Happened says that the effect has happened. The caller gets the result as a Duplicate; it may
// be nil, and is what [Do] stores: for most types JSON.
func Happened(result []byte) Resolution {
	return Resolution{State: driver.StateSucceeded, Result: result}
}

// FailedForGood says that the effect has failed, and that no retry can change it. Duplicates get
// the text replayed as a [*FailedError], cut at 1 KiB. Where the store keeps no failures, the
// caller gets it, and the next call asks again.
func FailedForGood(text string) Resolution {
	return Resolution{State: driver.StateFailed, Result: []byte(text)}
}

// DidNotHappen says that the effect has not happened, and that no request is on its way which
// could still make it happen: the caller may run it. The key stays dangerous: when that attempt
// ends without success, a failure for good or [NotStarted], it is asked about again. To answer
// it always is the very risk for which [MarkIrreversible] was called.
func DidNotHappen() Resolution { return Resolution{State: driver.StateReleased} }

// checkLimits refuses a window or hold that the store would refuse with each end, when the effect
// has happened.
func checkLimits(l *driver.Limits, cfg *Config) error {
	switch {
	case l.Window != 0 && l.Window != cfg.Window:
		return &InputError{Field: "Config.Window",
			Reason: fmt.Sprintf("is %v; its store has one window for all keys, %v",
				cfg.Window, l.Window)}
	case l.MaxLease != 0 && l.MaxLease < cfg.LeaseTTL:
		return &InputError{Field: "Config.LeaseTTL",
			Reason: fmt.Sprintf("is %v; its store is made for %v at most", cfg.LeaseTTL, l.MaxLease)}
	case cfg.Hold < l.MinHold:
		return &InputError{Field: "Config.Hold",
			Reason: fmt.Sprintf("is %v; its store needs %v at least", cfg.Hold, l.MinHold)}
	case l.MaxHold != 0 && l.MaxHold < cfg.Hold:
		return &InputError{Field: "Config.Hold",
			Reason: fmt.Sprintf("is %v; its store keeps what is unfinished for %v at most",
				cfg.Hold, l.MaxHold)}
	}
	return nil
}
