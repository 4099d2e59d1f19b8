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

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/servertest"
)

// TestOutageOfHalfAMinute has a store that is out for 30 s under load: what waits for it does not grow
// with the outage, no effect begins, and nothing that was acknowledged is forgotten. How much goes through
// in the 5 s that begin 5 s after it is back is told, and beside it the goal of nine tenths: single
// seconds of a machine differ by more than a tenth, also before.
func TestOutageOfHalfAMinute(t *testing.T) {
	const outage, within, callers = 30 * time.Second, 5 * time.Second, 64
	// A server that hangs has go-redis wait for each connection and each reply in goroutines of its own,
	// for some seconds: about 1,150 from the third second on, and no more at the thirtieth.
	const bound = 32 * callers
	for _, fault := range []struct {
		name      string
		hit, mend func(*servertest.Server)
	}{
		{"SIGKILL", func(s *servertest.Server) { s.Kill(1) }, func(s *servertest.Server) { s.Start(1) }},
		{"SIGSTOP", func(s *servertest.Server) { s.Stop(1) }, func(s *servertest.Server) { s.Cont(1) }},
	} {
		for _, l := range layouts {
			t.Run(fault.name+"/"+l.name, func(t *testing.T) {
				server := servertest.Private(t, servertest.KindRedis)
				cfg := dedup.Config{Window: window, LeaseTTL: 5 * time.Second, StoreTimeout: time.Second}
				d := l.deduper(t, single(t, &redis.Options{Addr: server.Addr, DialTimeout: time.Second, ReadTimeout: time.Second}), cfg)
				f := startFlood(t, d, callers)
				f.rate(2 * within) // connections, and what fills at first
				earlier := f.course(within)
				before := mean(earlier)
				goroutines := runtime.NumGoroutine()
				fault.hit(server)
				begun, most := f.effects.Load(), 0
				for range outage / time.Second {
					f.rate(time.Second)
					most = max(most, runtime.NumGoroutine())
				}
				during := f.effects.Load() - begun
				fault.mend(server)
				back, later := f.course(within), f.course(within)
				after := mean(later)
				f.stop()
				t.Logf("%.0f messages/s before, %.0f %v after; %d goroutines before, %d at most during; %d effects began meanwhile, %d calls failed",
					before, after, within, goroutines, most, during, f.failed.Load())
				if most > goroutines+bound {
					t.Errorf("%d goroutines while the store is out, %d before: what waits for it is not bounded", most, goroutines)
				}
				if during > callers {
					t.Errorf("%d effects began while the store was out", during)
				}
				t.Logf("%.2f of what it was in the %v from %v after it is back on; the goal is 0.90. By second: before%s; after%s",
					after/before, within, within, shares(earlier, before), shares(append(back, later...), before))
				f.check(t)
			})
		}
	}
}

// flood is callers that each do one message after the other, and the same one again after an error.
type flood struct {
	d               *dedup.Deduper
	effects, failed atomic.Int64
	done            atomic.Int64
	cancel          context.CancelFunc
	wg              sync.WaitGroup

	mu  sync.Mutex
	ran map[string]int // effects of each key that was answered as done
}

func startFlood(t *testing.T, d *dedup.Deduper, callers int) *flood {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &flood{d: d, cancel: cancel, ran: make(map[string]int)}
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
	for ctx.Err() == nil {
		_, err := dedup.Do(ctx, f.d, key, func(context.Context) (struct{}, error) {
			effects++
			f.effects.Add(1)
			return struct{}{}, nil
		})
		if err == nil {
			f.done.Add(1)
			f.mu.Lock()
			f.ran[key] = effects
			f.mu.Unlock()
			return
		}
		f.failed.Add(1)
		_ = backoff.Sleep(ctx, 20*time.Millisecond)
	}
}

// rate is how many messages a second were acknowledged in a time from now.
func (f *flood) rate(over time.Duration) float64 {
	before := f.done.Load()
	timer := time.NewTimer(over)
	defer timer.Stop()
	<-timer.C
	return float64(f.done.Load()-before) / over.Seconds()
}

// course is the rate of each second of a time.
func (f *flood) course(over time.Duration) (rates []float64) {
	for range over / time.Second {
		rates = append(rates, f.rate(time.Second))
	}
	return rates
}

func mean(rates []float64) (m float64) {
	for _, r := range rates {
		m += r / float64(len(rates))
	}
	return m
}

func shares(rates []float64, of float64) string {
	var b strings.Builder
	for _, r := range rates {
		fmt.Fprintf(&b, " %.2f", r/of)
	}
	return b.String()
}

func (f *flood) stop() {
	f.cancel()
	f.wg.Wait()
}

// check reports what was acknowledged and has had no effect. A second effect needs the outage: the first
// one's record was under way then.
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
	if lost > 0 {
		t.Errorf("%d messages are acknowledged and had no effect", lost)
	}
	if most := 64; again > most {
		t.Errorf("%d messages had a second effect; at most the %d whose record was under way can", again, most)
	}
}
