package dedup_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/onceward/onceward/dedup"
)

func TestHandlerLearnsItsAttempt(t *testing.T) {
	d := newDeduper(t, dedup.Memory(10), nil)
	var fences []uint64
	for want := 1; want <= 3; want++ {
		_, _ = do(t, d, "k", func(ctx context.Context) (string, error) {
			a, ok := dedup.FromContext(ctx)
			if !ok || a.Key != "k" || a.Number != want {
				t.Errorf("attempt %d: %+v, %t", want, a, ok)
			}
			fences = append(fences, a.Fence())
			return "", errNet
		})
	}
	if len(fences) != 3 || fences[0] == 0 || fences[1] <= fences[0] || fences[2] <= fences[1] {
		t.Errorf("fences %v", fences)
	}
	if _, ok := dedup.FromContext(t.Context()); ok || dedup.Landed(t.Context()) || dedup.Landed(nil) { //nolint:staticcheck // a caller may
		t.Error("an attempt outside a handler")
	}
}

// The attempt is counted when it is claimed: a handler that kills its process still
// reaches its cap.
func TestAttemptIsCountedWhenItIsClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		for want := 1; want <= 5; want++ {
			d := newDeduper(t, store, waiting(2*lease))
			if c := acquire(t, d, "k"); c.Attempt != want { // and dies
				t.Errorf("attempt %d, want %d", c.Attempt, want)
			}
		}
	})
}

// downstream claims a key and returns what an effect would send further down.
func downstream(t *testing.T, d *dedup.Deduper, key string, opts []dedup.Option, purpose ...string) string {
	t.Helper()
	c := acquire(t, d, key, opts...)
	ctx, stop := c.KeepAlive(t.Context())
	defer stop()
	a, ok := dedup.FromContext(ctx)
	if !ok {
		t.Fatal("no attempt")
	}
	derived := a.DownstreamKey(purpose...)
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	return derived
}

func TestDownstreamKeyIsTheSameOnEveryAttemptAndDistinctPerPurpose(t *testing.T) {
	store := dedup.Memory(100)
	d, other := newDeduper(t, store, nil), newDeduper(t, store, func(c *dedup.Config) { c.Namespace = "other" })
	scope := []dedup.Option{dedup.WithScope("s")}
	first := downstream(t, d, "k", nil, "stripe", "charge")
	for range 3 {
		if again := downstream(t, newDeduper(t, store, nil), "k", nil, "stripe", "charge"); again != first {
			t.Fatalf("%q became %q", first, again)
		}
	}
	all := map[string]string{}
	for name, derived := range map[string]string{
		"stripe, charge":  first,
		"charge, stripe":  downstream(t, d, "k", nil, "charge", "stripe"),
		"stripe":          downstream(t, d, "k", nil, "stripe"),
		"stripecharge":    downstream(t, d, "k", nil, "stripecharge"),
		"stripec, harge":  downstream(t, d, "k", nil, "stripec", "harge"),
		"nothing":         downstream(t, d, "k", nil),
		"empty":           downstream(t, d, "k", nil, ""),
		"two empty":       downstream(t, d, "k", nil, "", ""),
		"other key":       downstream(t, d, "k2", nil, "stripe", "charge"),
		"other scope":     downstream(t, d, "k", scope, "stripe", "charge"),
		"other namespace": downstream(t, other, "k", nil, "stripe", "charge"),
	} {
		if twin, ok := all[derived]; ok || len(derived) != 22 {
			t.Errorf("%q of %s, also of %s", derived, name, twin)
		}
		all[derived] = name
	}
	// It reaches other systems, which keep it: it never changes.
	if want := "x8RLnR_qX-JZMjCi4yZEWg"; first != want {
		t.Errorf("%q, want %q", first, want)
	}
}
