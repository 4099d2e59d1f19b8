package redis_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/redisadapter"
)

// load delivers messages to a Deduper from several workers, each message again and again until it
// may be acknowledged, and records the results.
type load struct {
	layout
	d *dedup.Deduper
	// crash is how often a worker dies between claim and effect: at the first delivery of one
	// message in this number. 0 means never.
	crash int
	cfg   dedup.Config
	// pace is the time between two messages of a worker.
	pace time.Duration

	mu      sync.Mutex
	effects map[string]int
	acked   []string
	// troubles counts what the Deduper returned to its caller, by call and class.
	troubles map[string]int
	// slowest is the longest time from a message's first delivery to its acknowledgment, except
	// for messages whose worker died.
	slowest time.Duration
	// longest is the longest single call.
	longest time.Duration

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// loads are those of all layouts, on the same servers at the same time: a test then takes as long
// for many layouts as for one.
type loads []*load

// begin starts the load of every layout with leases of this length, and waits until all loads are
// running.
func begin(t *testing.T, client redis.UniversalClient, lease time.Duration, crash int) loads {
	t.Helper()
	cfg := dedup.Config{Window: window, LeaseTTL: lease, StoreTimeout: time.Second}
	var all loads
	for _, lay := range layouts {
		l := &load{layout: lay, d: lay.deduper(t, client, cfg), crash: crash,
			cfg: cfg, pace: 5 * time.Millisecond}
		l.start(t, workers)
		all = append(all, l)
	}
	all.through(t, "start")
	return all
}

// Each load has 8 workers, and counts as running after 400 messages.
const workers, enough = 8, 400

// A lease that outlasts the loss of a server lets a completion wait for the server's successor.
// The shorter one is for tests in which the messages of dead workers wait for its end.
const longLease, shortLease = 10 * time.Second, 3 * time.Second

// through waits until enough further messages are acknowledged in every layout.
func (all loads) through(t *testing.T, what string) {
	t.Helper()
	for _, l := range all {
		before := l.acknowledged()
		eventually(t, 30*time.Second, "messages go through after the "+what, func() bool {
			return l.acknowledged() > before+enough
		})
	}
}

// end lets every message that was begun be acknowledged, and has the records of each layout
// judged in a subtest.
func (all loads) end(t *testing.T, checkResult func(t *testing.T, l *load, v checkResult)) {
	t.Helper()
	for _, l := range all {
		l.stop()
	}
	for _, l := range all {
		l.wg.Wait()
		t.Run(l.name, func(t *testing.T) { checkResult(t, l, l.judge(t)) })
	}
}

// start begins the load; stop and wg.Wait end it.
func (l *load) start(t *testing.T, workers int) {
	t.Helper()
	l.effects, l.troubles = make(map[string]int), make(map[string]int)
	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	for w := range workers {
		l.wg.Go(func() {
			for n := 0; backoff.Sleep(ctx, l.pace) == nil; n++ {
				key := fmt.Sprintf("%d-%d", w, n)
				if l.crash > 0 && n%l.crash == 0 {
					l.wg.Go(func() { l.deliver(t.Context(), key, true) }) // waits for a lease
					continue
				}
				l.deliver(t.Context(), key, false)
			}
		})
	}
}

// report lists the results that the caller saw, except success.
func (l *load) report() string {
	if len(l.troubles) == 0 {
		return "no error"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(l.troubles)) {
		parts = append(parts, fmt.Sprintf("%s x %d", name, l.troubles[name]))
	}
	return strings.Join(parts, ", ")
}

// acknowledged is how many messages are done so far.
func (l *load) acknowledged() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// deliver acts as a broker: it redelivers the message until it is acknowledged.
func (l *load) deliver(ctx context.Context, key string, crash bool) {
	began := time.Now()
	for try := 0; ctx.Err() == nil; try++ {
		if l.attempt(ctx, key, crash && try == 0) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.acked = append(l.acked, key)
			if !crash {
				l.slowest = max(l.slowest, time.Since(began))
			}
			return
		}
		_ = backoff.Sleep(ctx, 20*time.Millisecond)
	}
}

// attempt acts as a consumer. It reports whether the message may be acknowledged: this worker did
// it, or it is on record, or it is a duplicate of one that is.
func (l *load) attempt(ctx context.Context, key string, crash bool) bool {
	sent := time.Now()
	c, err := l.d.Claim(ctx, key)
	l.note("claim", sent, err)
	switch {
	case err != nil:
		return false
	case c.Outcome == dedup.Duplicate:
		return true
	case c.Outcome != dedup.Acquired || crash:
		return false
	}
	l.mu.Lock()
	l.effects[key]++
	l.mu.Unlock()
	sent = time.Now()
	err = c.Complete(ctx, l.result)
	l.note("complete", sent, err)
	return err == nil
}

func (l *load) note(call string, sent time.Time, err error) {
	took := time.Since(sent)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.longest = max(l.longest, took)
	switch {
	case err == nil:
	case errors.Is(err, dedup.ErrLeaseLost):
		l.troubles[call+" lease lost"]++
	case dedup.OutcomeUnknown(err):
		class := redisadapter.Classify(err)
		l.troubles[call+" unknown: "+class]++
		if class == "other" {
			l.troubles[err.Error()]++
		}
	default:
		l.troubles[fmt.Sprintf("%s: %v", call, err)]++
	}
}

// checkResult is the result of the records after the faults.
type checkResult struct {
	// lost messages were acknowledged and never had an effect.
	lost int
	// doubled messages had more than one.
	doubled int
	// forgotten messages were acknowledged, and would run again if they were redelivered.
	forgotten int
}

// judge counts, and redelivers every acknowledged message once.
func (l *load) judge(t *testing.T) checkResult {
	t.Helper()
	var v checkResult
	for _, key := range l.acked {
		switch n := l.effects[key]; {
		case n == 0:
			v.lost++
		case n > 1:
			v.doubled++
		}
	}
	for part := range slices.Chunk(l.acked, 1000) {
		reqs := make([]dedup.Request, len(part))
		for i := range part {
			reqs[i].Key = part[i]
		}
		claims, err := l.d.ClaimBatch(t.Context(), reqs)
		require.NoError(t, err)
		for _, c := range claims {
			switch c.Outcome {
			case dedup.Duplicate:
			case dedup.Acquired, dedup.InFlight:
				v.forgotten++
			default:
				t.Fatalf("after the storm: %v: %v", c.Outcome, c.Err())
			}
		}
	}
	t.Logf("%d messages acknowledged: %d lost, %d doubled, %d forgotten; slowest %v, longest call %v; the caller saw %s",
		len(l.acked), v.lost, v.doubled, v.forgotten,
		l.slowest.Round(time.Millisecond), l.longest.Round(time.Millisecond), l.report())
	return v
}
