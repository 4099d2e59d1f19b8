package dedup

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/internal/keytext"
)

// Mode says what a Deduper does with duplicates, and what it does while its store cannot be asked.
type Mode uint8

const (
	// Enforce skips duplicates, and runs nothing while the store cannot be asked.
	Enforce Mode = iota
	// Observe runs everything, as if there were no Deduper, and the Observer learns what would have
	// been skipped. Claims that would have been won are taken and recorded, so that the report is
	// true. A lost lease cancels no handler, and a record that was not written is not an error.
	Observe
	// FailOpen is like Enforce, but runs the effect without a claim while the store cannot be
	// asked, and then calls Observer.FailedOpen. It is for effects that may happen twice.
	FailOpen
)

// Config configures a [Deduper]. Namespace, Window, LeaseTTL have no default.
type Config struct {
	// Namespace separates deployments in a store: 1-64 of a-z, A-Z, 0-9, '_', '.', '-'. Required.
	Namespace string

	// Window is how long a finished key is remembered; a later duplicate runs again. It must exceed
	// the longest redelivery horizon. Request.Window shortens it for a key. Required, at least
	// LeaseTTL, at most ten years.
	Window time.Duration

	// LeaseTTL is how long a claim lasts without renewal; a running handler's claim is renewed. The
	// key of a crashed owner stays in flight that long, and in an outage the Deduper retries
	// recording that long. Required, at least 50 ms.
	LeaseTTL time.Duration

	// Hold is how long an unfinished key keeps its attempt count and fence after its lease or
	// release. It must exceed the longest retry backoff. At most ten years. Default: the longest of
	// ten leases, one hour, and what the store needs.
	Hold time.Duration

	// Resolve finds out whether the effect of an uncertain key has happened: an attempt on the key
	// ended after [MarkIrreversible] without saying how. Default nil: it stays uncertain until Mark
	// or Forget.
	Resolve func(ctx context.Context, key string, rec Record) (Resolution, error)

	// Wait is how long to wait for a key in flight before answering InFlight. The key's end wakes
	// the call, across processes if all set Wait and the store is a [driver.Waker]. One call per
	// key polls. Default 0.
	Wait time.Duration

	// MaxWaiters bounds the calls that wait. One more is answered InFlight at once. Default 1000.
	MaxWaiters int

	// StoreTimeout bounds one round trip to the store, or with package layered one call, which
	// makes up to three round trips. It must be shorter than LeaseTTL. Default: a third of
	// LeaseTTL, at most two seconds.
	StoreTimeout time.Duration

	// ResultLimit bounds a stored result in bytes. A larger one is not kept: the key is recorded as
	// done, and its replay answers ErrNoResult. Default 256 KiB.
	ResultLimit int

	// SeenOnly keeps no results: the replay of a value, and Complete with a result, answer
	// ErrNoResult. Some stores require it. All processes of a namespace should agree. Default
	// false.
	SeenOnly bool

	// CacheBytes bounds the cache of finished keys: about 106 bytes each, and results up to 1 KiB.
	// It notices a Forget elsewhere within about a second, or a minute without
	// [driver.ForgetCounter]. At least 64 KiB. Default 0: no cache.
	CacheBytes int

	// Mode is [Enforce], [Observe] or [FailOpen]. Default Enforce.
	Mode Mode

	// Labels stores each Request.Label in clear. The labels of adapters name the request: method,
	// path and Idempotency-Key, or a webhook's provider, endpoint and id. Default false.
	Labels bool

	// Observer is told what happens. Default: nobody.
	Observer Observer

	// Logger gets warnings: leases lost, records that could not be written. A key appears as its
	// ID, in the attribute key_id. Default: discarded.
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

// margin returns how much earlier a lease ends on its owner's clock: 1 % for the drift of two
// clocks plus 2 ms for timers, as implementations of Redis's distributed lock algorithm (Redlock)
// do.
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

// Resolution is what Config.Resolve answers about an uncertain key. Resolve asks the downstream
// whether the effect has happened, preferably by the Attempt.DownstreamKey that the effect was sent
// with. The zero Resolution, or an error, means "still unknown": the next call asks again.
//
// [Do] and Claim call Resolve, but not in Observe mode; ClaimBatch and Seen never do. Across all
// processes, one caller of a key at a time calls it, under a claim that counts as an attempt and is
// renewed; others find the key in flight. The ctx of Resolve carries that attempt, follows the
// caller's, and is canceled with ErrLeaseLost when the claim is lost; rec has StateUncertain. A
// panic leaves the key uncertain and is passed on.
type Resolution = driver.Resolution

// Happened says that the effect has happened. The caller gets the result as a Duplicate. The
// result may be nil; otherwise it has the form that [Do] stores, for most types JSON.
func Happened(result []byte) Resolution {
	return Resolution{State: driver.StateSucceeded, Result: result}
}

// FailedForGood says that the effect has failed, and no retry can change it. Duplicates get a
// [*FailedError] with the text, cut at 1 KiB. If the store keeps no failures, only this caller gets
// it, and the next call asks again.
func FailedForGood(text string) Resolution {
	return Resolution{State: driver.StateFailed, Result: cutFailure(text)}
}

// DidNotHappen says that the effect has not happened, and that no request on its way could still
// make it happen: the caller may run it. The key stays irreversible: Resolve is asked again unless
// that attempt ends with success, a failure for good, or [NotStarted]. A Resolve that always
// answers this takes the risk that [MarkIrreversible] is meant to avoid.
func DidNotHappen() Resolution { return Resolution{State: driver.StateReleased} }

// checkLimits refuses a window, lease or hold that the store would refuse at each end, after the
// effect has happened.
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
