package redisadapter

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/compact"
	"github.com/onceward/onceward/redisadapter/internal/guard"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

const (
	// defaultMaxInFlight is the bound of pipelines under way.
	defaultMaxInFlight = 64
	// defaultBreakerAfter is how many calls in a row must fail to reach the server until the
	// breaker opens.
	defaultBreakerAfter = 8
)

// DefaultPrefix begins the name of every key, unless Options.Prefix says otherwise.
const DefaultPrefix = "ow"

// Layout says what is kept of a finished key.
type Layout uint8

const (
	// Full keeps one record per key, with its result or failure, fingerprint, origin and
	// label. It is the default. A Deduper with SeenOnly completes with a plain command.
	Full Layout = iota
	// Compact keeps 8 bytes per key that has succeeded, in sets of some hundred keys each: about 10
	// bytes a key, where a record takes 180 and more. It remembers only that a key is done, and
	// needs [dedup.Config].SeenOnly. A failure gets a record. Results and fingerprints are refused:
	// with them a key would cost more than in Full. Options.Secret, Window and ExpectedKeys are
	// required.
	Compact
)

// String returns the lower-case name.
func (l Layout) String() string {
	switch l {
	case Full:
		return "full"
	case Compact:
		return "compact"
	}
	return fmt.Sprintf("layout(%d)", uint8(l))
}

// Options of a [Store]. The zero value is ready for use.
type Options struct {
	// Prefix begins the name of every key in Redis: 1-64 bytes of letters, digits, '_',
	// '.', '-'. Two deployments that share a server need two prefixes. Default DefaultPrefix.
	Prefix string

	// WrappedBy names the store that wraps this one, where the keys of the prefix may be claimed
	// only through the wrapper: for example, because it gives out some keys without a claim
	// here. It has 1-64 bytes of letters, digits, '_', '.', '-'. The name is part of the
	// layout's record: New refuses a process that gives another name, or none, with
	// [ErrOtherLayout]. Every call of this store is refused with an [*driver.InputError] until
	// the wrapper calls [Store.OpenFor]. Default "": the store is used as it is.
	WrappedBy string

	// Layout says what is kept of a finished key. All processes that share a prefix must
	// agree on it, or New returns [ErrOtherLayout]. Default Full.
	Layout Layout

	// Durability makes every call that writes wait until replicas, or the disk, have the write. The
	// zero value does not wait.
	Durability Durability

	// AllowEviction makes New accept a server that may evict claims and records when its
	// memory is full: effects of redelivered messages then run again, and nothing reports it.
	// Without it New accepts such a server only with Amnesia FailClosed, which grants no claim once
	// keys have been evicted. Set it where a repetition does not matter, such as a test. Default
	// false.
	AllowEviction bool
	// Strict makes New also refuse what [Preflight] calls critical, and the warnings of lost
	// data and of plaintext: no persistence, keys that were evicted, no TLS. Otherwise New
	// refuses a server that may evict, a client that reads from replicas, and what cannot
	// work. Default false.
	Strict bool
	// OnFinding is called with what New, Watch and the amnesia guard find; it must not block and
	// may be called by several goroutines. Default: findings are logged through slog.
	OnFinding func(preflight.Finding)

	// Amnesia says what happens to claims when the server has lost data. Anything but
	// GuardOff needs a canary (see [Init]) and INFO, and costs one GET per server and batch
	// of claims; on a server that may evict, also one INFO. Default GuardOff.
	Amnesia Amnesia
	// AmnesiaFor is how long a loss matters: the deduper's Window, after which nothing
	// that was lost would have been remembered. Required with Amnesia.
	AmnesiaFor time.Duration
	// SuspectFor is how long claims count as unsafe after a failover, or a restart that kept the
	// canary. Set it to the time by which a replica may lag. Default 2 s.
	SuspectFor time.Duration
	// Secondary is asked before claims are granted; required with AskSecondary.
	Secondary driver.Store

	// MaxInFlight bounds the pipelines that are under way at once, including those that were left
	// behind when their context ended. Claims and lookups take at most three quarters of them. A
	// call waits for its turn until its context ends. Default 64.
	MaxInFlight int
	// BreakerAfter is how many calls in a row must fail to reach the server, until calls
	// fail at once with [ErrBreakerOpen]; negative for never. Default 8.
	BreakerAfter int
	// Secret keys the digests of the layout Compact, so that nobody who chooses keys can make
	// two collide: at least 16 random bytes, the same in all processes that share a prefix.
	// With another secret, no key that is done would be found: New returns [ErrOtherLayout].
	// Required by Compact, and an error with Full.
	Secret []byte

	// Window must equal [dedup.Config].Window. The layout Compact has one window for all keys, and
	// refuses a claim or an end with another. At least 100 ms. It must be the same in all processes
	// that share a prefix. Required by Compact, and an error with Full.
	Window time.Duration

	// ExpectedKeys is how many keys end within a Window, for the layout Compact: 1 to 4e9.
	// With half to twice as many keys a key takes 9 to 11 bytes, and with a tenth of them 14
	// or 15. With more than twice as many, buckets outgrow the server's compact encoding: with
	// 2.5 times as many a key takes 78 bytes. It must be the same in all processes that share a
	// prefix, because it decides where a key is found. Required by Compact, and an error with Full.
	ExpectedKeys int
}

// complete returns the options with their defaults, or names the first bad one.
func (o Options) complete() (Options, error) {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if problem := redisscript.PrefixProblem(o.Prefix); problem != "" {
		return o, input("Options.Prefix", problem)
	}
	if problem := redisscript.PrefixProblem(o.WrappedBy); o.WrappedBy != "" && problem != "" {
		return o, input("Options.WrappedBy", problem)
	}
	if o.Layout > Compact {
		return o, input("Options.Layout", fmt.Sprintf("is %d; Full and Compact are known", o.Layout))
	}
	if err := o.checkCompact(); err != nil {
		return o, err
	}
	if err := o.Durability.complete(); err != nil {
		return o, err
	}
	return o.completeGuard()
}

// completeGuard looks at what concerns the server's health.
func (o Options) completeGuard() (Options, error) {
	switch {
	case o.Amnesia > AskSecondary:
		return o, input("Options.Amnesia",
			fmt.Sprintf("is %d; GuardOff to AskSecondary are known", o.Amnesia))
	case o.AmnesiaFor < 0:
		return o, input("Options.AmnesiaFor", "is negative")
	case o.Amnesia != GuardOff && o.AmnesiaFor == 0:
		return o, input("Options.AmnesiaFor",
			"is required with Options.Amnesia: the deduper's window")
	case o.SuspectFor < 0:
		return o, input("Options.SuspectFor", "is negative")
	case (o.Amnesia == AskSecondary) != (o.Secondary != nil):
		return o, input("Options.Secondary",
			"goes with the Options.Amnesia AskSecondary, and with no other")
	case o.MaxInFlight < 0:
		return o, input("Options.MaxInFlight", "is negative")
	}
	o.MaxInFlight = cmp.Or(o.MaxInFlight, defaultMaxInFlight)
	o.BreakerAfter = cmp.Or(o.BreakerAfter, defaultBreakerAfter)
	o.SuspectFor = cmp.Or(o.SuspectFor, guard.DefaultSuspectFor)
	if o.OnFinding == nil {
		o.OnFinding = logFinding
	}
	return o, nil
}

// Shards returns the number of shards of the layout Compact, such that each bucket gets 235 of the
// ExpectedKeys. Zero for Full.
func (o Options) Shards() int {
	if o.Layout != Compact {
		return 0
	}
	return compact.Shards(o.ExpectedKeys)
}

// checkCompact names the first bad option of the layout with buckets.
func (o *Options) checkCompact() error {
	if o.Layout == Compact {
		return compact.Check(o.Secret, o.Window, o.ExpectedKeys)
	}
	var field string
	switch {
	case o.Secret != nil:
		field = "Options.Secret"
	case o.Window != 0:
		field = "Options.Window"
	case o.ExpectedKeys != 0:
		field = "Options.ExpectedKeys"
	default:
		return nil
	}
	return input(field, fmt.Sprintf("is set; the layout %v has no use for it", o.Layout))
}

// input returns the error of a value that makes no sense.
func input(field, reason string) error { return wire.Input(field, reason) }

// defaultWaitTimeout is the default of Durability.Timeout.
const defaultWaitTimeout = 500 * time.Millisecond

// ErrNotDurable is in the error of a write that was executed, but had not reached the disk, or as
// many replicas, as [Options.Durability] asks for. Such a write may be lost with its server, so the
// store does not rely on it: a claim is not granted, and is given back; an end is not confirmed,
// and is sent again.
var ErrNotDurable = redisscript.ErrShort

// Durability says how safe a write must be before it counts. Replication is asynchronous. Without
// waiting, a failover forgets what was acknowledged just before. And a server that is frozen for
// less than a lease, while its replica is promoted, leaves two owners of one key.
//
// Waiting is one WAIT, or WAITAOF, at the end of each pipeline, on a Cluster one for each
// master. It costs a round trip between the server and its replicas per call, which large
// batches share. Just before it, the pipeline writes PREFIX:waited: WAIT answers for the last write
// of its own connection, and a call that is sent again may find its record and write nothing.
// Waiting makes losing a write much less likely, and not impossible: Redis's documentation says
// that WAIT does not make it a strongly consistent store.
//
// Completions by [Store.Atomic] do not wait. An ACL user needs +wait, or +waitaof, too.
type Durability struct {
	// Replicas that must have got a write: 0 to 16. Default 0: none.
	Replicas int
	// Disk says that the server itself, and as many replicas as Replicas says, must have fsynced a
	// write to their append-only files. It needs Redis 7.2 and appendonly yes. Default false.
	Disk bool
	// Timeout bounds the waiting. It must be shorter than the client's ReadTimeout, and than
	// [dedup.Config].StoreTimeout, or a slow replica is taken for a dead server. Default 500 ms.
	Timeout time.Duration
}

const maxReplicas = 16

func (d *Durability) waits() bool { return d.Replicas > 0 || d.Disk }

// complete sets the default, or names the bad field.
func (d *Durability) complete() error {
	switch {
	case d.Replicas < 0 || d.Replicas > maxReplicas:
		return input("Options.Durability.Replicas",
			fmt.Sprintf("is %d; 0 to %d are allowed", d.Replicas, maxReplicas))
	case d.Timeout < 0:
		return input("Options.Durability.Timeout", "is negative")
	case d.Timeout > 0 && !d.waits():
		return input("Options.Durability.Timeout", "is set, and there is nothing to wait for")
	case d.Timeout == 0:
		d.Timeout = defaultWaitTimeout
	}
	return nil
}

// runner makes the Runner that the options ask for.
func (o *Options) runner(client redis.UniversalClient) *redisscript.Runner {
	if !o.Durability.waits() {
		return redisscript.NewRunner(client)
	}
	return redisscript.NewWaitingRunner(client, &redisscript.Wait{
		Replicas: o.Durability.Replicas, Disk: o.Durability.Disk, Timeout: o.Durability.Timeout,
		Key: o.Prefix + ":waited",
	})
}

// tryDurability writes something and waits for it, on every master, so that New fails where a
// server does not know the command, or has too few replicas.
func (s *Store) tryDurability(ctx context.Context, client redis.UniversalClient) error {
	if !s.opts.Durability.waits() {
		return nil
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return s.tryOn(ctx, node)
		})
	}
	return s.tryOn(ctx, client)
}

func (s *Store) tryOn(ctx context.Context, server redis.UniversalClient) error {
	d := s.opts.Durability
	ms := redisscript.Millis(d.Timeout) // 0 would wait forever
	args := []any{"wait", d.Replicas, ms}
	if d.Disk {
		args = []any{"waitaof", 1, d.Replicas, ms}
	}
	if err := server.Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("redisadapter: Options.Durability: %s: %w", args[0], err)
	}
	info, err := server.Info(ctx, "replication").Result()
	if err != nil {
		return fmt.Errorf("redisadapter: Options.Durability: INFO: %w", err)
	}
	var replicas int
	_, _ = fmt.Sscan(wire.ParseInfo(info)["connected_slaves"], &replicas)
	if replicas < d.Replicas {
		return fmt.Errorf("redisadapter: Options.Durability: %w: the server has %d replicas, %d are asked for", ErrNotDurable, replicas, d.Replicas)
	}
	return nil
}
