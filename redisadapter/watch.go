package redisadapter

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/redisadapter/internal/compact"
	"github.com/onceward/onceward/redisadapter/internal/guard"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

const (
	// defaultWatch is how often [Store.Watch] looks by default, on average: an event is noticed
	// within a second.
	defaultWatch = 400 * time.Millisecond

	// watchCap is the longest time between two looks at a server that is down.
	watchCap = 5 * time.Second
	// clockMargin is by how much a server's clock may move against ours between two
	// looks, in addition to the time that the look took.
	clockMargin = 500 * time.Millisecond
)

// Watch looks at the server, or at every master of a Cluster, until ctx ends, and then returns the
// cause. Run it in a goroutine of your own: New starts none. It reports each event once, through
// Options.OnFinding: evictions, memory that runs out, another or a restarted server, a master that
// became a replica, and a clock that jumped. It also reports a server that does not answer, a
// policy that evicts, and buckets that outgrow what they are made for. With Options.Amnesia it also
// reads all canaries, so that a loss is noticed while no claims are made. Claims need no watcher:
// they look themselves before they are granted.
//
// Every is the mean time between two looks, with jitter; zero means 400 ms. A look is one INFO per
// server and one GET per canary (64 on a Cluster, in one pipeline per master). In the layout
// Compact, one look a minute also samples 16 buckets in each of two generations. While a server
// does not answer, looks become rarer, up to every five seconds. One watcher per process is enough;
// two do no harm.
func (s *Store) Watch(ctx context.Context, every time.Duration) error {
	if ctx == nil {
		return input("Context", "is nil")
	}
	if every < 0 {
		return input("every", "is negative")
	}
	if every == 0 {
		every = defaultWatch
	}
	w := &watcher{s: s, every: every, began: time.Now(), last: make(map[string]observed)}
	failures := 0
	for ctx.Err() == nil {
		if err := w.round(ctx); err != nil && ctx.Err() == nil {
			w.failed(err, failures)
			failures++
		} else {
			failures = 0
		}
		if err := backoff.Sleep(ctx, w.pause(failures)); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

type watcher struct {
	s     *Store
	every time.Duration
	began time.Time
	last  map[string]observed // by address

	fill compact.Fill
}

// observed is what the last look at one server has found.
type observed struct {
	at      time.Time
	run     string // its run id
	evicts  bool   // keys, when memory is full
	short   bool   // of memory
	replica bool
	clock   time.Duration // ahead of ours, counted from began
	took    time.Duration // clock may be further ahead by at most this
	timed   bool
	bare    bool // a master without a canary
}

// pause returns how long to wait: the second half of the time is jitter.
func (w *watcher) pause(failures int) time.Duration {
	return backoff.Policy{Base: w.every, Cap: max(watchCap, w.every),
		Kind: backoff.Equal}.Delay(failures, 0, nil)
}

func (w *watcher) failed(err error, before int) {
	if before == 0 {
		w.s.engine.Guard.Report(
			wire.Advices.Finding(wire.CodeUnreachable, wire.Address(w.s.client()), "%v", err))
	}
}

// serverReport is one look at one server.
type serverReport struct {
	fields         wire.Info
	sent, received time.Time
}

// round looks once at everything. Calls of go-redis may outlast ctx: those left behind write into
// maps that nobody reads.
func (w *watcher) round(ctx context.Context) error {
	g := w.s.engine.Guard
	conns := guard.Connections(g.Client)
	var mu sync.Mutex
	heard := make(map[string]serverReport)
	err := wire.Within(ctx, func() error {
		_, err := wire.EachServer(ctx, g.Client,
			func(ctx context.Context, addr string, node redis.UniversalClient) error {
				sent := time.Now()
				fields, err := wire.AskInfo(ctx, node)
				if err == nil && !fields.Embedded() {
					mu.Lock()
					heard[addr] = serverReport{fields, sent, time.Now()}
					mu.Unlock()
				}
				return err
			})
		return err
	})
	mu.Lock()
	seen := make(map[string]wire.Info, len(heard))
	for addr, a := range heard {
		seen[addr] = a.fields
		w.compare(addr, a)
	}
	mu.Unlock()
	w.checkCanaries(ctx, seen)
	err = errors.Join(err, wire.Within(ctx, func() error { return w.learn(ctx, seen, conns) }))
	if err != nil {
		return err
	}
	return wire.Within(ctx, func() error { w.checkFill(ctx); return nil })
}

// checkCanaries reports the masters without a canary, of those that were seen just now: a master
// that was replaced needs none any more.
func (w *watcher) checkCanaries(ctx context.Context, seen map[string]wire.Info) {
	g := w.s.engine.Guard
	if g.Cluster == nil || !g.On() {
		return
	}
	held := make(map[string]bool)
	for node := range *g.Find(ctx) {
		held[node.Options().Addr] = true
	}
	for addr := range seen {
		is := w.last[addr]
		if !held[addr] && !is.bare && !is.replica {
			g.Report(wire.Advices.Finding(wire.CodeNoCanary, addr,
				"none of the %d canaries lies in its slots", len(g.Keys)))
		}
		is.bare = !held[addr]
		w.last[addr] = is
	}
}

// learn tells the guard what was seen.
func (w *watcher) learn(ctx context.Context, seen map[string]wire.Info, conns uint64) error {
	g := w.s.engine.Guard
	if len(seen) > 0 {
		if err := g.Meet(ctx, seen, conns); err != nil {
			return err
		}
	}
	if !g.On() {
		return nil
	}
	return g.Look(ctx)
}

// compare reports what has happened at a server since the last look; the guard compares
// how many keys it has evicted.
func (w *watcher) compare(addr string, a serverReport) {
	report := w.s.engine.Guard.Report
	was, known := w.last[addr]
	is := w.observe(a)
	is.bare = was.bare
	before := was.evicts
	if !known { // New has looked at it, unless it is a new server
		before = w.s.evicted[addr]
	}
	if is.evicts && !before {
		report(wire.Advices.Finding(wire.CodeEvictionPolicy, addr,
			"maxmemory-policy is %s now, and maxmemory %s", a.fields["maxmemory_policy"],
			a.fields["maxmemory"]))
	}
	if is.short && !was.short {
		report(wire.Advices.Finding(wire.CodeMemory, addr, "%s of %s bytes are used",
			a.fields["used_memory"], a.fields["maxmemory"]))
	}
	if is.replica && !was.replica {
		report(wire.Advices.Finding(wire.CodeRole, addr, "its role is %s now", a.fields["role"]))
	}
	jump := is.clock - was.clock
	if known && was.timed && is.timed && jump.Abs() > clockMargin+was.took+is.took {
		report(wire.Advices.Finding(wire.CodeClock, addr, "its clock has jumped by %v",
			jump.Round(time.Millisecond)))
	}
	w.last[addr] = is
}

func (w *watcher) observe(a serverReport) (is observed) {
	is.at, is.took, is.run = a.received, a.received.Sub(a.sent), a.fields["run_id"]
	is.evicts = evicts(a.fields)
	limit, _ := a.fields.Count("maxmemory")
	used, _ := a.fields.Count("used_memory")
	is.short = limit > 0 && used > limit/100*nearLimit
	is.replica = a.fields["role"] == "slave" || a.fields["role"] == "replica"
	at, timed := a.fields.Clock()
	// The clock is compared with ours as if nobody had set ours since began, because Sub is
	// monotonic.
	is.clock, is.timed = at.Sub(w.began.Add(a.received.Sub(w.began)).Round(0)), timed
	return is
}

// evicts reports whether a server says that it may evict keys.
func evicts(fields wire.Info) bool {
	return fields["maxmemory_policy"] != "" && guard.MayEvict(fields)
}

// checkFill looks at how full buckets are.
func (w *watcher) checkFill(ctx context.Context) {
	if w.s.buckets != nil {
		w.fill.Look(ctx, w.s.engine, w.s.buckets)
	}
}

// Health is what a [Store] knows about its server, for a readiness probe and metrics.
type Health struct {
	// Amnesia says that claims follow Options.Amnesia now: data is lost, or, with
	// Suspect, may be. Remaining is how much longer that lasts.
	Amnesia, Suspect bool
	Remaining        time.Duration
	// Flagged counts claims that AllowAndFlag has granted in spite of amnesia.
	Flagged uint64
	// BreakerOpen says that the server cannot be reached, so that calls fail at once.
	BreakerOpen bool
	// InFlight is the number of pipelines under way.
	InFlight int
}

// Health returns what is known now. It asks nobody, and never blocks for long.
func (s *Store) Health() Health {
	h := Health{Flagged: s.engine.Guard.Flagged.Load(), BreakerOpen: s.engine.Line.BreakerOpen(),
		InFlight: s.engine.Line.InFlight()}
	h.Amnesia, h.Suspect, h.Remaining = s.engine.Guard.Health()
	return h
}

// Remembers returns how long the server has certainly kept all that was written, as far as this
// process has seen. That is the time since the last loss, suspicion, ClearAmnesia or Init that it
// noticed, and the largest Duration if it noticed none. It is 0 with GuardOff, which notices
// nothing. It is 0 as well once New, [Store.Watch] or a claim has met a server that may evict keys
// (its maxmemory-policy), or one that does not say whether it may.
//
// A batch that has won claims notices losses, so call Remembers after such a batch was answered. A
// loss before this process began counts only if it is not acknowledged yet. Remembers asks no
// server. Package layered looks for this method when it has a Filter.
func (s *Store) Remembers() time.Duration { return s.engine.Guard.Remembers() }
