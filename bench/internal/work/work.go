// Package work holds what the workloads of several suites share: keys that are divided among
// callers or batches, and Onceward in each of its layouts. Steps fail with [must.Do].
package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
	"github.com/onceward/onceward/bench/internal/peer"
	"github.com/onceward/onceward/bench/internal/resp"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/dedup/preflight"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/redisadapter"
)

// Typical is the batch size that the goals are about.
const Typical = 256

// Batch does the work of a batch, in one of several workers.
type Batch = peer.Batch

// Callers does what Each does, for work that does not need the number of its goroutine.
func Callers(n int, one peer.Cycle) harness.Run {
	return Each(n, func(ctx context.Context, _ int, key string) { one(ctx, key) })
}

// Each calls one for all keys from n goroutines, in the keys' order, and measures each call.
func Each(n int, one func(ctx context.Context, worker int, key string)) harness.Run {
	return func(ctx context.Context, t *harness.Timing) {
		Share(ctx, n, 1, len(t.Keys), func(ctx context.Context, worker, i, _ int) {
			began := time.Now()
			one(ctx, worker, t.Keys[i])
			t.Latency[i] = max(time.Since(began), 1)
		})
	}
}

// InBatches calls one for batches of size keys from n goroutines.
func InBatches(n, size int, one Batch) harness.Run {
	return func(ctx context.Context, t *harness.Timing) {
		Share(ctx, n, size, len(t.Keys), func(ctx context.Context, worker, from, to int) {
			one(ctx, worker, t.Keys[from:to])
		})
	}
}

// Share divides total things among n workers. Each takes atOnce of them at a time, until none is
// left.
func Share(ctx context.Context, n, atOnce, total int,
	do func(ctx context.Context, worker, from, to int)) {
	var next atomic.Int64
	Parallel(ctx, n, func(ctx context.Context, worker int) {
		for {
			to := int(next.Add(int64(atOnce)))
			if to-atOnce >= total {
				return
			}
			do(ctx, worker, to-atOnce, min(to, total))
		}
	})
}

// Parallel runs f n times. It fails with the first failure, which ends the others.
func Parallel(ctx context.Context, n int, f func(ctx context.Context, worker int)) {
	if n == 1 {
		f(ctx, 0) // a lone caller has no goroutine to switch to
		return
	}
	all, running := errgroup.WithContext(ctx)
	for i := range n {
		all.Go(func() error { return must.Try(func() { f(running, i) }) })
	}
	must.Do(errors.Join(all.Wait(), context.Cause(ctx)))
}

// Until calls over every millisecond until over returns true, and fails when ctx ends. The
// parameter n of over is the number of calls before this one.
func Until(ctx context.Context, over func(n int) bool) {
	const patience = 5 * time.Minute // then the run is stuck
	ctx, cancel := context.WithTimeoutCause(ctx, patience,
		fmt.Errorf("work: waited for %v in vain", patience))
	defer cancel()
	for n := 0; !over(n); n++ {
		must.Do(backoff.Sleep(ctx, time.Millisecond))
	}
}

// Loop times operations that need no fresh keys.
type Loop struct {
	Budget     time.Duration // the first timing finds how many things fill it
	Goroutines int           // no two do the same things
	Most       uint64        // limit on the things of a timing; 0: none
}

// Job does n things, beginning with number from.
type Job func(from, n uint64)

// Side adds a side that does a job. Every timing begins a new job.
func (l Loop) Side(s *harness.Setup, name string, begin func() Job) {
	const least, apart = 2000, 1 << 40
	n, from := uint64(least), uint64(0)
	s.External(name, func(ctx context.Context) harness.Sample {
		if l.Most > 0 {
			n = min(n, l.Most)
		}
		do := begin()
		one := func(_ context.Context, g int) { do(from+uint64(g)*apart, n/uint64(l.Goroutines)) }
		runtime.GC()
		sample := harness.Meter{}.Measure(ctx, func() int {
			Parallel(ctx, l.Goroutines, one)
			return int(n) // as many as one timing has
		})
		sample.BusyUS = 0
		from += n // things that were asked before are in a cache
		n = max(least, uint64(sample.Rate*l.Budget.Seconds()))
		return sample
	})
}

// Raw is connections of the raw client, one for each worker.
type Raw []*resp.Conn

// RawToken is an owner's token on the wire: 16 bytes, like ours.
const RawToken = "0123456789abcdef"

// DialRaw opens n connections until the setup ends.
func DialRaw(ctx context.Context, s *harness.Setup, addr string, n int) (raw Raw) {
	for range n {
		c := resp.Dial(ctx, addr)
		s.Defer(c.Close)
		raw = append(raw, c)
	}
	return raw
}

// Cycle does a batch of new keys in two pipelines: the least that claim and completion can cost.
// value is the value of a finished key.
func (r Raw) Cycle(value string) Batch {
	return func(ctx context.Context, worker int, keys []string) {
		r[worker].ClaimNew(ctx, keys, RawToken, peer.Lease)
		r[worker].Complete(ctx, keys, RawToken, value, peer.Window)
	}
}

// Layout is one way in which our store keeps its records.
type Layout struct {
	Name     string // of the side
	kind     redisadapter.Layout
	expected int // keys that end within a window; the number of buckets depends on it
	// Prefix is empty for one that no other plan has. Its length matters if a bucket has few keys,
	// because each bucket's name contains it.
	Prefix string
}

// The layouts that take part. Full is the default, and the goals for speed are about it. Where a
// family has room for only one layout, it is Full. The timings of one group add about as many keys
// as Compact expects, so in the end its buckets are as full as planned.
var (
	Full    = Layout{Name: "onceward full"}
	Compact = Layout{Name: "onceward compact", kind: redisadapter.Compact, expected: 200_000}

	Layouts = []Layout{Full, Compact}
)

// Expecting plans buckets for n keys. Layouts without buckets ignore it.
func (l Layout) Expecting(n int) Layout {
	if l.kind == redisadapter.Compact {
		l.expected = n
	}
	return l
}

func (l Layout) options(window time.Duration) redisadapter.Options {
	o := redisadapter.Options{
		Layout: l.kind,
		// Each layout needs a prefix of its own. These are as long as the default one, or keys
		// would be larger.
		Prefix:    fmt.Sprint("o", int(l.kind)),
		OnFinding: func(preflight.Finding) {}, // the run wants no persistence
	}
	if l.kind == redisadapter.Compact {
		o.Secret, o.Window, o.ExpectedKeys = []byte("secret of the benchmarks"), window, l.expected
		// Stores that plan different buckets need different prefixes, too.
		o.Prefix += strconv.FormatUint(
			uint64(crc32.ChecksumIEEE(fmt.Append(nil, l.expected, window)))%(36*36), 36)
	}
	o.Prefix = cmp.Or(l.Prefix, o.Prefix)
	return o
}

// Cached turns on the in-process cache of finished keys, with room for all keys of a stream.
func Cached(c *dedup.Config) { c.CacheBytes = 32 << 20 }

// Window sets the window. An hour is longer than any measurement, a day is usual in practice.
func Window(d time.Duration) func(*dedup.Config) { return func(c *dedup.Config) { c.Window = d } }

// Deduper is an opened layout.
type Deduper struct{ *dedup.Deduper }

// Open connects a layout to addr until the setup ends, with a client of the usual settings.
func (l Layout) Open(ctx context.Context, s *harness.Setup, addr string, db int,
	with ...func(*dedup.Config)) *Deduper {
	// Each Deduper has a namespace of its own, so its keys differ from those of every other. The
	// timeout is so long that even a busy machine does not reach it: after a timeout, the Kafka
	// adapter would pause.
	cfg := dedup.Config{Namespace: "bench-" + harness.Fresh(), Window: peer.Window,
		LeaseTTL: time.Minute, StoreTimeout: 30 * time.Second,
		SeenOnly: l.kind == redisadapter.Compact}
	for _, change := range with {
		change(&cfg)
	}
	store := must.Get(redisadapter.New(ctx, server.NewClient(s, addr, db, 0),
		l.options(cfg.Window)))
	return Open(s, store, cfg)
}

// Open makes a Deduper over a store until the setup ends.
func Open(s *harness.Setup, store dedup.Store, cfg dedup.Config) *Deduper {
	d := must.Get(dedup.New(store, cfg))
	s.DeferCtx(d.Close)
	return &Deduper{d}
}

// These are the sets of outcomes that a claimed key may have: new, known, or either. A stream
// allows both, because another worker may have just claimed the key.
var (
	New    = []driver.Outcome{dedup.Acquired}
	Known  = []driver.Outcome{dedup.Duplicate}
	Either = []driver.Outcome{dedup.Acquired, dedup.Duplicate, dedup.InFlight}
)

// One runs an effect that does nothing and has no result.
func (d *Deduper) One(expected []driver.Outcome) peer.Cycle {
	return func(ctx context.Context, key string) {
		res, err := dedup.DoResult(ctx, d.Deduper, key,
			func(context.Context) (struct{}, error) { return struct{}{}, nil })
		if !errors.Is(err, dedup.ErrInFlight) { // this outcome is allowed
			must.Do(err)
		}
		expect(key, res.Outcome, expected)
	}
}

// Batch claims keys, and completes the new ones with result. If result is nil, keys have none.
func (d *Deduper) Batch(expected []driver.Outcome, result []byte) Batch {
	return d.batch(dedup.Request{NoResult: result == nil}, expected, result)
}

// Likely claims known keys for a consumer that expects duplicates, such as one that replays.
func (d *Deduper) Likely() Batch {
	return d.batch(dedup.Request{NoResult: true, LikelyDuplicate: true}, Known, nil)
}

func (d *Deduper) batch(like dedup.Request, expected []driver.Outcome, result []byte) Batch {
	return func(ctx context.Context, _ int, keys []string) {
		claims := must.Get(d.ClaimBatch(ctx, Requests(keys, like)))
		if ends := Won(claims, result, expected); len(ends) > 0 {
			d.Complete(ctx, ends)
		}
	}
}

// Complete completes all claims, or fails.
func (d *Deduper) Complete(ctx context.Context, ends []dedup.Completion) {
	must.Do(errors.Join(d.CompleteBatch(ctx, ends)...))
}

// Next completes one batch and claims another one in one exchange.
func (d *Deduper) Next(ctx context.Context, ends []dedup.Completion,
	reqs []dedup.Request) []*dedup.Claim {
	errs, claims, err := d.CompleteAndClaim(ctx, ends, reqs)
	must.Do(err)
	must.Do(errors.Join(errs...))
	return claims
}

// Won returns completions for the claims that were acquired.
func Won(claims []*dedup.Claim, result []byte,
	expected []driver.Outcome) (ends []dedup.Completion) {
	ends = make([]dedup.Completion, 0, len(claims))
	for _, c := range claims {
		expect(c.Key, c.Outcome, expected)
		if c.Outcome == dedup.Acquired {
			ends = append(ends, dedup.Completion{Claim: c, Result: result})
		}
	}
	return ends
}

func expect(key string, outcome driver.Outcome, expected []driver.Outcome) {
	if !slices.Contains(expected, outcome) {
		must.Do(fmt.Errorf("%s: outcome %v", key, outcome))
	}
}

// Requests returns claim requests for keys that otherwise equal like.
func Requests(keys []string, like dedup.Request) []dedup.Request {
	reqs := slices.Repeat([]dedup.Request{like}, len(keys))
	for i, key := range keys {
		reqs[i].Key = key
	}
	return reqs
}

// Merged claims each batch in the round trip that completes the one before, as a consumer does that
// always has a next batch.
func (d *Deduper) Merged(workers int) harness.Run {
	return func(ctx context.Context, t *harness.Timing) {
		ends := make([][]dedup.Completion, workers)
		InBatches(workers, Typical, func(ctx context.Context, worker int, keys []string) {
			reqs := Requests(keys, dedup.Request{NoResult: true})
			ends[worker] = Won(d.Next(ctx, ends[worker], reqs), nil, New)
		})(ctx, t)
		Parallel(ctx, workers, func(ctx context.Context, worker int) {
			d.Complete(ctx, ends[worker])
		})
	}
}

// Fill makes the store remember the first n numbered keys.
func (d *Deduper) Fill(ctx context.Context, n int) {
	const part = 1 << 14 // keys that are in memory here at the same time
	run := InBatches(4, Typical, d.Batch(New, nil))
	Numbers(n, part, numbered, func(keys []string) { run(ctx, &harness.Timing{Keys: keys}) })
}

// Numbers calls do for n keys that form makes from their number, atOnce at a time.
func Numbers(n, atOnce int, form string, do func(keys []string)) {
	for from := 0; from < n; from += atOnce {
		keys := make([]string, min(atOnce, n-from))
		for i := range keys {
			keys[i] = fmt.Sprintf(form, from+i)
		}
		do(keys)
	}
}

const numbered = "remembered-key-%021d" // as long as a UUID

// Numbered returns the i-th key of [Deduper.Fill].
func Numbered(i int) string { return fmt.Sprintf(numbered, i) }
