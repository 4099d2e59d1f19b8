package work

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/redisadapter"
)

func TestEveryKeyIsWorkedOnOnce(t *testing.T) {
	for name, run := range map[string]func(count func(string)) harness.Run{
		"callers": func(count func(string)) harness.Run {
			return Callers(7, func(_ context.Context, key string) error { count(key); return nil })
		},
		"batches": func(count func(string)) harness.Run {
			return InBatches(3, 16, func(_ context.Context, _ int, keys []string) error {
				for _, key := range keys {
					count(key)
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			keys := harness.FreshKeys(100) // no multiple of anything
			counts := make(map[string]*atomic.Int32)
			for _, key := range keys {
				counts[key] = new(atomic.Int32)
			}
			timing := &harness.Timing{Keys: keys, Latency: make([]time.Duration, len(keys))}
			if err := run(func(key string) {
				counts[key].Add(1)
			})(t.Context(), timing); err != nil {
				t.Fatal(err)
			}
			for key, n := range counts {
				if n.Load() != 1 {
					t.Errorf("%s: %d times", key, n.Load())
				}
			}
			for i, d := range timing.Latency {
				if (d > 0) != (name == "callers") {
					t.Errorf("latency %d is %v", i, d)
				}
			}
		})
	}
}

func TestAFailureEndsAllCallers(t *testing.T) {
	boom := errors.New("boom")
	run := Callers(4, func(ctx context.Context, key string) error {
		if key == "bad" {
			return boom
		}
		<-ctx.Done()
		return ctx.Err()
	})
	timing := &harness.Timing{Keys: []string{"a", "b", "bad", "c"},
		Latency: make([]time.Duration, 4)}
	if err := run(t.Context(), timing); !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
}

// Buckets hold as many keys as they are planned for, or memory and CPU are those of other plans.
func TestBucketsArePlanned(t *testing.T) {
	for _, l := range Layouts {
		l = l.Expecting(1234)
		o := l.options(5)
		if o.Layout != l.Kind {
			t.Errorf("%s: layout %v", l.Name, o.Layout)
		}
		buckets := l.Kind == redisadapter.Compact || l.Kind == redisadapter.Mixed
		if want := map[bool]int{true: 1234}[buckets]; o.ExpectedKeys != want {
			t.Errorf("%s: ExpectedKeys %d, want %d", l.Name, o.ExpectedKeys, want)
		}
		if buckets != (o.Window == 5) || buckets != (len(o.Secret) >= 16) {
			t.Errorf("%s: window %v, %d bytes of secret", l.Name, o.Window, len(o.Secret))
		}
	}
}
