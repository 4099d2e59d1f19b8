package redisadapter_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// forgets reads the number, which must be readable.
func forgets(t *testing.T, store *redisadapter.Store) uint64 {
	t.Helper()
	n, err := store.Forgets(t.Context())
	must(t, err)
	return n
}

// TestForgetsSurviveTheirLoss: a number that came back would hide a Forget from a cache
// that has seen it before; a random one does not.
func TestForgetsSurviveTheirLoss(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		store, other := open(t, b), open(t, b)
		seen := map[uint64]bool{}
		for i := range 20 {
			n := forgets(t, store)
			if again := forgets(t, other); again != n {
				t.Fatalf("two readers see %d and %d", n, again)
			}
			if seen[n] {
				t.Fatalf("round %d: %d has been there before", i, n)
			}
			seen[n] = true
			if i%2 == 1 {
				must(t, other.Forget(t.Context(), []dedup.ID{newID(1)}, time.Second)[0])
			} else {
				must(t, b.Client.Del(t.Context(), b.Prefix+":forgets").Err())
			}
		}
		if left := b.Client.PTTL(t.Context(), b.Prefix+":forgets").Val(); left < 29*24*time.Hour {
			t.Errorf("the number is kept for %v", left)
		}
	})
}

// TestForgetsOfALiveClaim: a Forget that was refused changes nothing, so no cache is emptied.
func TestForgetsOfALiveClaim(t *testing.T) {
	b := newBench(t)
	b.claim(request(1))
	before := forgets(t, b.Store)
	if err := b.Forget(t.Context(), []dedup.ID{newID(1)}, time.Second)[0]; !errors.Is(err,
		dedup.ErrInFlight) {
		t.Fatal(err)
	}
	if after := forgets(t, b.Store); after != before {
		t.Errorf("%d became %d", before, after)
	}
}

// TestForgetThatCannotBeTold answers an error for what was forgotten, so that the
// operator asks again, and leaves what is not ours as it was.
func TestForgetThatCannotBeTold(t *testing.T) {
	for name, plant := range map[string]func(b *bench) error{
		"foreign text": func(b *bench) error {
			return b.client.Set(b.Context(), "ow:forgets", "hello", 0).Err()
		},
		"another type": func(b *bench) error {
			return b.client.LPush(b.Context(), "ow:forgets", "hello").Err()
		},
		"too large": func(b *bench) error {
			return b.client.Set(b.Context(), "ow:forgets", "99999999999999999999", 0).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			live := request(2)
			b.claim(live)
			must(t, plant(b))
			if _, err := b.Forgets(t.Context()); !errors.Is(err, dedup.ErrUnreadable) {
				t.Errorf("Forgets: %v", err)
			}
			if name == "too large" { // digits are taken for ours, and replaced
				return
			}
			errs := b.Forget(t.Context(), []dedup.ID{newID(1), newID(2)}, time.Second)
			if !errors.Is(errs[0], dedup.ErrUnreadable) ||
				!strings.Contains(errs[0].Error(), "may not be told") {
				t.Errorf("forgotten and not told: %v", errs[0])
			}
			if !errors.Is(errs[1], dedup.ErrInFlight) {
				t.Errorf("refused: %v", errs[1])
			}
			if v, err := b.client.Get(t.Context(), "ow:forgets").Result(); err == nil &&
				v != "hello" {
				t.Errorf("overwritten with %q", v)
			}
			must(t, b.client.Del(t.Context(), "ow:forgets").Err())
			must(t, b.Forget(t.Context(), []dedup.ID{newID(1)}, time.Second)[0])
		})
	}
}
