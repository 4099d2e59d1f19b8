//go:build long

package redis_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/servertest"
)

// TestOutageOfHalfAMinute has a store that is out for 30 s under load. The number of waiting
// goroutines does not grow with the outage, no effect begins, and no acknowledged message is
// forgotten. From 5 s after the store is back, its throughput is at least nine tenths of the one
// before. A machine's throughput varies by more than a tenth from second to second. So the
// throughput before and after is compared with that of the same load on a store that was never out.
// The two loads run in turn. The test needs a machine that does nothing else.
func TestOutageOfHalfAMinute(t *testing.T) {
	const outage, within, over, callers, goal = 30 * time.Second, 5 * time.Second,
		20 * time.Second, 64, 0.90
	// While a server hangs, go-redis waits for each connection and each reply in goroutines of its
	// own, for some seconds: about 1,150 from the third second on, and no more at the thirtieth.
	const bound = 32 * callers
	for _, fault := range []struct {
		name        string
		hit, repair func(*servertest.Server)
	}{
		{"SIGKILL", func(s *servertest.Server) {
			s.Kill(1)
		}, func(s *servertest.Server) { s.Start(1) }},
		{"SIGSTOP", func(s *servertest.Server) {
			s.Stop(1)
		}, func(s *servertest.Server) { s.Cont(1) }},
	} {
		for _, l := range layouts {
			t.Run(fault.name+"/"+l.name, func(t *testing.T) {
				f, server := floodOf(t, l, callers)
				twin, _ := floodOf(t, l, callers)
				f.beside(twin, over/2) // opens connections and fills caches
				before := f.beside(twin, over)
				f.resume()
				goroutines := runtime.NumGoroutine()
				fault.hit(server)
				begun, most := f.effects.Load(), 0
				for range outage / time.Second {
					wait(time.Second)
					most = max(most, runtime.NumGoroutine())
				}
				during := f.effects.Load() - begun
				fault.repair(server)
				healed := time.Now()
				steady(t, server)
				f.pause()
				// The two loads run in turn from here on. Otherwise one store would have more keys,
				// and would rehash alone.
				f.beside(twin, within-time.Since(healed).Round(time.Second))
				after := f.beside(twin, over)
				f.stop()
				twin.stop()
				t.Logf("%d goroutines before, %d at most during; %d effects began meanwhile, %d calls failed", goroutines, most, during, f.failed.Load())
				t.Logf("compared with the load without outage: %s before, %s from %v after the store is back: %.2f; the goal is %.2f",
					before, after, within, after.share()/before.share(), goal)
				assert.LessOrEqual(t, most, goroutines+bound,
					"goroutines while the store is out, %d before: their number is not bounded",
					goroutines)
				assert.LessOrEqual(t, during, int64(callers),
					"%d effects began while the store was out", during)
				assert.GreaterOrEqual(t, after.share(), goal*before.share(),
					"%.2f of the throughput before, next to one without outage; want %.2f",
					after.share()/before.share(), goal)
				f.check(t)
				twin.check(t)
			})
		}
	}
}

// steady keeps a server from rewriting its log by itself. That takes a second or two of a core when
// the log has grown enough, and one of two servers would do it earlier than the other.
func steady(t *testing.T, s *servertest.Server) {
	t.Helper()
	client := single(t, &redis.Options{Addr: s.Addr})
	eventually(t, 4*time.Second, "the server takes a setting", func() bool {
		return client.ConfigSet(t.Context(), "auto-aof-rewrite-percentage", "0").Err() == nil
	})
}

// slice is how long one of two floods runs before the other runs.
const slice = 50 * time.Millisecond

// comparison is how many messages two floods had acknowledged in equal times, by second.
type comparison struct {
	ours, spared int64
	seconds      []float64
}

func (r comparison) share() float64 { return float64(r.ours) / float64(r.spared) }

func (r comparison) String() string {
	var b strings.Builder
	for _, s := range r.seconds {
		fmt.Fprintf(&b, " %.2f", s)
	}
	return fmt.Sprintf("%.2f (%d and %d messages; by second%s)", r.share(), r.ours, r.spared,
		b.String())
}

// beside runs two floods in turn, a slice each, for a time. Both are paused when it returns.
func (f *flood) beside(twin *flood, over time.Duration) (r comparison) {
	for range over / time.Second {
		var ours, spared int64
		for range time.Second / slice / 2 {
			ours += f.runSlice()
			spared += twin.runSlice()
		}
		r.ours, r.spared = r.ours+ours, r.spared+spared
		r.seconds = append(r.seconds, float64(ours)/float64(spared))
	}
	return r
}

// runSlice runs a paused flood for one slice, and returns how many messages were acknowledged in
// it.
func (f *flood) runSlice() int64 {
	before := f.done.Load()
	f.resume()
	wait(slice)
	f.pause()
	return f.done.Load() - before
}

func wait(d time.Duration) { <-time.After(d) }

// flood is callers that each do one message after another, and repeat a message after an error.
type flood struct {
	d *dedup.Deduper
	// gate is held by a caller while it delivers once, and locked while the flood is paused.
	gate   sync.RWMutex
	paused bool

	effects, failed atomic.Int64
	done            atomic.Int64
	cancel          context.CancelFunc
	wg              sync.WaitGroup

	mu  sync.Mutex
	ran map[string]int // effects of each key that was answered as done
}

// floodOf returns a paused flood with a server of its own.
func floodOf(t *testing.T, l layout, callers int) (*flood, *servertest.Server) {
	t.Helper()
	server := servertest.Private(t, servertest.KindRedis)
	steady(t, server)
	cfg := dedup.Config{Window: window, LeaseTTL: 5 * time.Second, StoreTimeout: time.Second}
	client := single(t, &redis.Options{Addr: server.Addr, DialTimeout: time.Second,
		ReadTimeout: time.Second})
	return startFlood(t, l.deduper(t, client, cfg), callers), server
}

// startFlood returns a flood that is paused.
func startFlood(t *testing.T, d *dedup.Deduper, callers int) *flood {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &flood{d: d, cancel: cancel, ran: make(map[string]int)}
	f.pause()
	t.Cleanup(f.stop)
	for n := range callers {
		f.wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				f.deliver(ctx, fmt.Sprintf("%d-%d", n, i))
			}
		})
	}
	return f
}

// deliver delivers a message until it is acknowledged.
func (f *flood) deliver(ctx context.Context, key string) {
	effects := 0
	for ctx.Err() == nil && !f.acknowledged(ctx, key, &effects) {
		f.failed.Add(1)
		_ = backoff.Sleep(ctx, 20*time.Millisecond)
	}
}

// acknowledged delivers a message once.
func (f *flood) acknowledged(ctx context.Context, key string, effects *int) bool {
	f.gate.RLock()
	defer f.gate.RUnlock()
	_, err := dedup.Do(ctx, f.d, key, func(context.Context) (struct{}, error) {
		*effects++
		f.effects.Add(1)
		return struct{}{}, nil
	})
	if err != nil {
		return false
	}
	f.done.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ran[key] = *effects
	return true
}

// pause returns when no caller delivers.
func (f *flood) pause() { f.gate.Lock(); f.paused = true }

func (f *flood) resume() { f.paused = false; f.gate.Unlock() }

func (f *flood) stop() {
	f.cancel()
	if f.paused {
		f.resume()
	}
	f.wg.Wait()
}

// check reports messages that were acknowledged without an effect. A second effect needs the
// outage: the record of the first one was then on its way.
func (f *flood) check(t *testing.T) {
	t.Helper()
	lost, again := 0, 0
	for _, n := range f.ran {
		switch {
		case n == 0:
			lost++
		case n > 1:
			again++
		}
	}
	t.Logf("%d messages, %d with a second effect", len(f.ran), again)
	assert.Zero(t, lost, "%d messages are acknowledged and had no effect", lost)
	most := 64
	assert.LessOrEqual(t, again, most,
		"messages had a second effect; at most the %d whose record was under way can", most)
}
