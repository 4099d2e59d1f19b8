package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/onceward/onceward/dedup"
)

// swapper is a hooked store with FinishClaim. trips counts its calls, and lose makes the
// first of them lose its reply or break.
type swapper struct {
	*hooked
	trips int
	lose  func() error
}

func (s *swapper) FinishClaim(ctx context.Context, changes []dedup.Change, reqs []dedup.ClaimRequest) (ended, claimed []dedup.Answer) {
	s.trips++
	ended, claimed = s.inner.Finish(ctx, changes), s.inner.Claim(ctx, reqs)
	if s.trips > 1 || s.lose == nil {
		return ended, claimed
	}
	if err := s.lose(); err != nil {
		for i := range ended {
			ended[i] = dedup.Answer{Err: err}
		}
		for i := range claimed {
			claimed[i] = dedup.Answer{Err: err}
		}
	}
	return ended, claimed
}

func requests(from, to int) []dedup.Request {
	var reqs []dedup.Request
	for n := from; n < to; n++ {
		reqs = append(reqs, dedup.Request{Key: fmt.Sprint("key ", n)})
	}
	return reqs
}

func completions(claims []*dedup.Claim) []dedup.Completion {
	var done []dedup.Completion
	for _, c := range claims {
		done = append(done, dedup.Completion{Claim: c})
	}
	return done
}

// pump sends n batches of ten through CompleteAndClaim and ends the last one.
func pump(t *testing.T, d *dedup.Deduper, n int) {
	t.Helper()
	var done []dedup.Completion
	for batch := range n {
		errs, claims, err := d.CompleteAndClaim(t.Context(), done, requests(10*batch, 10*batch+10))
		if errs != nil || err != nil {
			t.Fatalf("batch %d: %v, %v", batch, errs, err)
		}
		for _, c := range claims {
			if c.Outcome != dedup.Acquired || c.Attempt != 1 {
				t.Fatalf("batch %d: %v, attempt %d, %v", batch, c.Outcome, c.Attempt, c.Err())
			}
		}
		done = completions(claims)
	}
	if errs, claims, err := d.CompleteAndClaim(t.Context(), done, nil); errs != nil || err != nil || len(claims) != 0 {
		t.Fatalf("the last: %v, %v, %d claims", errs, err, len(claims))
	}
	for n := range 10 * n {
		if seen, err := d.Seen(t.Context(), fmt.Sprint("key ", n)); err != nil || !seen {
			t.Fatalf("key %d is done: %t, %v", n, seen, err)
		}
	}
}

func TestCompleteAndClaim(t *testing.T) {
	t.Run("a store without it", func(t *testing.T) {
		pump(t, newDeduper(t, dedup.Memory(1000), nil), 4)
	})
	t.Run("one round trip for both", func(t *testing.T) {
		s := &swapper{hooked: hook()}
		pump(t, newDeduper(t, s, nil), 4)
		if claims, ends := len(s.of("Claim")), len(s.of("Finish")); s.trips != 3 || claims != 1 || ends != 1 {
			t.Errorf("4 batches took %d common trips, %d claims and %d ends of their own", s.trips, claims, ends)
		}
	})
	t.Run("a lost reply is asked for again", func(t *testing.T) {
		s := &swapper{hooked: hook(), lose: func() error { return errNet }}
		pump(t, newDeduper(t, s, nil), 4)
		if claims, ends := len(s.of("Claim")), len(s.of("Finish")); claims != 2 || ends != 2 {
			t.Errorf("%d claims and %d ends of their own", claims, ends)
		}
	})
	t.Run("nothing to send", func(t *testing.T) {
		s := &swapper{hooked: hook()}
		d := newDeduper(t, s, nil)
		errs, claims, err := d.CompleteAndClaim(t.Context(), []dedup.Completion{{}}, requests(0, 1))
		var input *dedup.InputError
		if len(errs) != 1 || !errors.As(errs[0], &input) || err != nil || claims[0].Outcome != dedup.Acquired {
			t.Errorf("a nil claim beside a good request: %v, %v, %v", errs, claims[0].Outcome, err)
		}
		errs, claims, err = d.CompleteAndClaim(t.Context(), completions(claims), []dedup.Request{{Key: ""}})
		if errs != nil || err != nil || !errors.As(claims[0].Err(), &input) {
			t.Errorf("a good claim beside a bad request: %v, %v, %v", errs, claims[0].Err(), err)
		}
	})
}

// TestCompleteAndClaimAfterClose prevents the last batch from staying unrecorded.
func TestCompleteAndClaimAfterClose(t *testing.T) {
	d := newDeduper(t, &swapper{hooked: hook()}, nil)
	claims, err := d.ClaimBatch(t.Context(), requests(0, 3))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	errs, next, err := d.CompleteAndClaim(t.Context(), completions(claims), requests(3, 6))
	if errs != nil || next != nil || !errors.Is(err, dedup.ErrClosed) {
		t.Errorf("after Close: %v, %d claims, %v", errs, len(next), err)
	}
	for _, c := range claims {
		if err := c.Complete(t.Context(), nil); err != nil {
			t.Errorf("%s was not recorded: %v", c.Key, err)
		}
	}
}

// TestCompleteAndClaimPanic prevents a store that panics from leaving a goroutine, and so
// Close, waiting forever.
func TestCompleteAndClaimPanic(t *testing.T) {
	s := &swapper{hooked: hook(), lose: func() error { panic("store") }}
	d := newDeduper(t, s, nil)
	claims, err := d.ClaimBatch(t.Context(), requests(0, 3))
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _, _ = d.CompleteAndClaim(t.Context(), completions(claims), requests(3, 6))
	}()
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A panic of the side that ends reaches the caller, who can recover, as in CompleteBatch.
func TestCompleteAndClaimPanicsInItsCaller(t *testing.T) {
	for name, s := range map[string]*swapper{
		"observer": {hooked: hook()},
		"store":    {hooked: hook(), lose: func() error { return errNet }},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeduper(t, s, func(c *dedup.Config) {
				if name == "observer" {
					c.Observer.Ended = func(dedup.Event) { panic(name) }
				}
			})
			claims, err := d.ClaimBatch(t.Context(), requests(0, 3))
			if err != nil {
				t.Fatal(err)
			}
			if name == "store" {
				s.setBefore(only("Finish", func(call) error { panic(name) }))
			}
			defer func() {
				if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), name) {
					t.Errorf("recovered %v", v)
				}
			}()
			_, _, err = d.CompleteAndClaim(t.Context(), completions(claims), requests(3, 6))
			t.Errorf("returned %v", err)
		})
	}
}
