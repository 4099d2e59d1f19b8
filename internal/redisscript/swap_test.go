package redisscript_test

import (
	"testing"

	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/internal/redistest"
)

// TestSwap prevents two who read the same value from both replacing it, and one whose reply was
// lost from taking what it has written for somebody else's.
func TestSwap(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		runner, key := redisscript.NewRunner(b.Client), b.Prefix+":swap"
		for _, row := range []struct{ name, old, value, answer, now string }{
			{"where nothing is, something was read", "x", "a", "other", ""},
			{"the first", "", "a", "swapped", "a"},
			{"its reply was lost", "", "a", "swapped", "a"},
			{"another first", "", "b", "other", "a"},
			{"the next", "a", "b", "swapped", "b"},
			{"read before it", "a", "c", "other", "b"},
		} {
			r := runner.Run(t.Context(),
				[]redisscript.Call{redisscript.NewSwap(key, row.old, row.value)})[0]
			if r.Err != nil || r.Answer != row.answer || r.Record != row.now {
				t.Errorf("%s: answered %q and %q, %v; want %q and %q", row.name, r.Answer,
					r.Record, r.Err, row.answer, row.now)
			}
			if got := b.Client.Get(t.Context(), key).Val(); got != row.now {
				t.Errorf("%s: left %q, want %q", row.name, got, row.now)
			}
		}
		if ttl := b.Client.PTTL(t.Context(), key).Val(); ttl >= 0 {
			t.Errorf("the key ends in %v", ttl)
		}
	})
}
