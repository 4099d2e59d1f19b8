package dedup_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// storm is a store whose network delays, loses and hangs at random, and the Deduper processes that
// share it. Runs of one seed differ only in the order of goroutines at one instant.
type storm struct {
	*testing.T
	store *hooked
	ds    []*dedup.Deduper

	mu  sync.Mutex
	rng *rand.Rand
}

func newStorm(t *testing.T, seed uint64, change func(*storm, *dedup.Config)) *storm {
	s := &storm{T: t, store: hook(), rng: rand.New(rand.NewPCG(seed, 0))}
	s.store.prompt = seed%2 == 0
	s.store.setBefore(s.weather)
	s.store.setAfter(s.weather)
	for i := range 3 {
		s.ds = append(s.ds, newDeduper(t, s.store, func(c *dedup.Config) {
			c.Window = 24 * time.Hour
			if i > 0 {
				c.CacheBytes = 64 << 10
			}
			if i > 1 {
				c.Wait = 2 * lease
			}
			change(s, c)
		}))
	}
	return s
}

func (s *storm) n(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

func (s *storm) pause(most time.Duration) { time.Sleep(time.Duration(s.n(int(most)))) }

func (s *storm) weather(call) error {
	switch n := s.n(100); {
	case n < 55:
	case n < 80:
		s.pause(3 * time.Second) // longer than Config.StoreTimeout
	case n < 84:
		s.pause(3 * lease)
	default:
		return errNet
	}
	return nil
}

// calls makes n calls at random times, each for one of the keys, some of them by callers
// that leave, and waits until their requests are over too.
func (s *storm) calls(n, keys int, call func(ctx context.Context, d *dedup.Deduper, key int)) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			defer func() { _ = recover() }() // handlers panic
			s.pause(5 * time.Minute)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if s.n(4) == 0 {
				time.AfterFunc(time.Duration(s.n(int(lease))), cancel)
			}
			call(ctx, s.ds[s.n(len(s.ds))], s.n(keys))
		})
	}
	wg.Wait()
	s.store.setBefore(nil)
	s.store.setAfter(nil)
	time.Sleep(10 * lease)
}

func eachSeed(t *testing.T, n uint64, test func(t *testing.T, seed uint64)) {
	for seed := range n {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, seed) })
		})
	}
}

// ran is what has happened to one key.
type ran struct{ running, landed, acked atomic.Int32 }

// handler runs for a while, ends at random, and insists on being alone until its context
// is canceled.
func (r *ran) handler(s *storm) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		assert.LessOrEqual(s, r.running.Add(1), int32(1), "two handlers of one key at a time")
		left := sync.OnceFunc(func() { r.running.Add(-1) })
		defer left()
		defer context.AfterFunc(ctx, left)()
		select {
		case <-time.After(time.Duration(s.n(int(3 * lease)))):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		if s.n(5) == 0 {
			return "", errBusy
		}
		r.landed.Add(1)
		return "v", nil
	}
}

// Whatever the network does, handlers of a key do not run at the same time, no caller gets "done"
// before the key is done, and no two callers hear that they did it.
func TestRandomCallsOnARandomNetwork(t *testing.T) {
	eachSeed(t, 100, func(t *testing.T, seed uint64) {
		s := newStorm(t, seed, func(*storm, *dedup.Config) {})
		keys := make([]ran, 6)
		s.calls(250, len(keys), func(ctx context.Context, d *dedup.Deduper, key int) {
			r, name := &keys[key], strconv.Itoa(key)
			if s.n(10) == 0 {
				seen, err := d.Seen(ctx, name)
				assert.False(t, seen && (err != nil || r.landed.Load() == 0),
					"seen before it landed, %v", err)
				return
			}
			res, err := dedup.DoResult(ctx, d, name, r.handler(s))
			switch {
			case err != nil:
			case res.Outcome == dedup.Acquired && r.acked.Add(1) > 1:
				t.Error("two callers did it")
			case r.landed.Load() == 0 || res.Value != "v":
				t.Errorf("%v with %q before it landed", res.Outcome, res.Value)
			}
		})
		for i := range keys {
			if keys[i].acked.Load() > 0 {
				wantState(t, s.store, strconv.Itoa(i), driver.StateSucceeded)
			}
		}
	})
}

// An effect after MarkIrreversible happens once, if the downstream answers truthfully, whatever
// the network, the handlers and the resolvers do.
func TestRandomMarkIrreversibleOnARandomNetwork(t *testing.T) {
	eachSeed(t, 100, func(t *testing.T, seed uint64) {
		paid := make([]atomic.Int32, 4)
		s := newStorm(t, seed, func(s *storm, c *dedup.Config) {
			c.SeenOnly = seed%3 == 0
			c.Resolve = func(ctx context.Context, key string, _ dedup.Record) (dedup.Resolution,
				error) {
				s.pause(2 * lease)
				n, err := strconv.Atoi(key)
				switch s.n(8) {
				case 0:
					return dedup.Resolution{}, err
				case 1:
					return dedup.Resolution{}, errNet
				case 2:
					panic("resolver")
				}
				if paid[n].Load() > 0 {
					return dedup.Happened(nil), err
				}
				return dedup.DidNotHappen(), err
			}
		})
		s.calls(120, len(paid), func(ctx context.Context, d *dedup.Deduper, key int) {
			_, err := dedup.Do(ctx, d, strconv.Itoa(key), s.payment(&paid[key]))
			assert.False(t, err == nil && paid[key].Load() != 1, "done, and %d times paid",
				paid[key].Load())
		})
	})
}

// payment is a handler that pays at once when MarkIrreversible has returned, so that no payment is
// under way while a resolver asks.
func (s *storm) payment(paid *atomic.Int32) func(context.Context) (struct{}, error) {
	return func(ctx context.Context) (none struct{}, err error) {
		s.pause(2 * lease)
		if s.n(6) == 0 {
			return none, errBusy
		}
		if err := dedup.MarkIrreversible(ctx); err != nil {
			return none, dedup.NotStarted(err)
		}
		assert.LessOrEqual(s, paid.Add(1), int32(1), "paid twice")
		s.pause(2 * lease)
		switch s.n(5) {
		case 0:
			return none, errors.New("the reply was lost")
		case 1:
			panic("handler")
		}
		return none, nil
	}
}
