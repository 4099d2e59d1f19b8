package dedup_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup"
)

var errBusy = errors.New("bank is busy")

// dangerous is a handler that declares danger and then ends as it is told.
func dangerous(t *testing.T, end func() error) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if err := dedup.Danger(ctx); err != nil {
			t.Errorf("Danger: %v", err)
		}
		return "v", end()
	}
}

// apart runs fn on a goroutine of its own, for handlers that panic or end theirs.
func apart(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		fn()
	}()
	<-done
}

// uncertainKey leaves a key uncertain, as an attempt that failed after Danger does.
func uncertainKey(t *testing.T, d *dedup.Deduper, store dedup.Store, key string) {
	t.Helper()
	_, err := do(t, d, key, dangerous(t, func() error { return errBusy }))
	wantErr(t, err, errBusy)
	wantState(t, store, key, dedup.StateUncertain)
}

func TestHowAnAttemptEndsAfterDanger(t *testing.T) {
	for name, test := range map[string]struct {
		end     func() error
		without dedup.State // how it ends without Danger
		with    dedup.State
	}{
		"nil":                   {func() error { return nil }, dedup.StateSucceeded, dedup.StateSucceeded},
		"error":                 {func() error { return errBusy }, dedup.StateReleased, dedup.StateUncertain},
		"permanent":             {func() error { return dedup.Permanent(errBusy) }, dedup.StateFailed, dedup.StateFailed},
		"not begun":             {func() error { return dedup.NotBegun(errBusy) }, dedup.StateReleased, dedup.StateReleased},
		"not begun, wrapped":    {func() error { return errors.Join(errNet, dedup.NotBegun(errBusy)) }, dedup.StateReleased, dedup.StateReleased},
		"not begun, permanent":  {func() error { return dedup.NotBegun(dedup.Permanent(errBusy)) }, dedup.StateFailed, dedup.StateFailed},
		"permanent, not begun":  {func() error { return dedup.Permanent(dedup.NotBegun(errBusy)) }, dedup.StateFailed, dedup.StateFailed},
		"panic":                 {func() error { panic("boom") }, dedup.StateReleased, dedup.StateUncertain},
		"ends its goroutine":    {func() error { runtime.Goexit(); return nil }, dedup.StateReleased, dedup.StateUncertain},
		"failure of another's":  {func() error { return &dedup.FailedError{Message: "x"} }, dedup.StateFailed, dedup.StateFailed},
		"lease lost, it thinks": {func() error { return dedup.ErrLeaseLost }, dedup.StateReleased, dedup.StateUncertain},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, seen := hook(), &journal{}
				d := newDeduper(t, store, func(c *dedup.Config) { c.Observer = seen.observer() })
				apart(func() {
					_, _ = do(t, d, "without", func(context.Context) (string, error) { return "v", test.end() })
				})
				wantState(t, store, "without", test.without)
				seen.want(t, "uncertain", 0)

				apart(func() { _, _ = do(t, d, "with", dangerous(t, test.end)) })
				rec := wantState(t, store, "with", test.with)
				if want := test.with == dedup.StateUncertain; rec.Danger != want || len(seen.of("uncertain")) > 0 != want {
					t.Errorf("danger %t, told %+v", rec.Danger, seen.of("uncertain"))
				}
			})
		})
	}
}

func TestNotBegunIsAnError(t *testing.T) {
	if dedup.NotBegun(nil) != nil {
		t.Error("NotBegun(nil) is an error")
	}
	err := dedup.NotBegun(errBusy)
	if !errors.Is(err, errBusy) || err.Error() != errBusy.Error() || dedup.IsPermanent(err) || !dedup.CanRetry(err) {
		t.Errorf("NotBegun hides what it wraps: %v", err)
	}
	if err := dedup.NotBegun(dedup.Permanent(errBusy)); !dedup.IsPermanent(err) || dedup.CanRetry(err) {
		t.Error("a failure for good that has not begun is not one any more")
	}
}

// Nobody gets an uncertain key, until an operator decides.
func TestOperatorsDecideAboutUncertainKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		for _, key := range []string{"happened", "again"} {
			uncertainKey(t, d, store, key)
			_, err := do(t, d, key, mustNotRun(t))
			wantErr(t, err, dedup.ErrUncertain)
			if dedup.CanRetry(err) {
				t.Error("a key that nobody asks about is retryable")
			}
			wantOutcome(t, claim(t, d, key), dedup.Uncertain)
			wantOutcome(t, claimBatch(t, d, keyed(key))[0], dedup.Uncertain)
			_, err = d.Seen(t.Context(), key)
			wantErr(t, err, dedup.ErrUncertain)
		}
		if first, err := d.Mark(t.Context(), "happened"); !first || err != nil {
			t.Errorf("Mark: %t, %v", first, err)
		}
		wantOutcome(t, claim(t, d, "happened"), dedup.Duplicate)
		if err := d.Forget(t.Context(), "again"); err != nil {
			t.Error(err)
		}
		if res, err := do(t, d, "again", returns("v")); err != nil || res.Attempt != 1 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// A process that dies after Danger leaves a key that lives for the window, although
// lease and hold are shorter.
func TestDangerOutlivesTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		a, b := newProcess(t, store.inner), newDeduper(t, store, nil)
		c := acquire(t, a.d, "k")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		if err := dedup.Danger(run); err != nil {
			t.Fatal(err)
		}
		a.die()
		time.Sleep(lease)
		wantOutcome(t, claim(t, b, "k"), dedup.Uncertain)
		rec := wantState(t, store, "k", dedup.StateUncertain)
		if rec.Remaining < 59*time.Minute {
			t.Errorf("remembered for %v", rec.Remaining)
		}
	})
}

// Danger has not returned before the store has answered, and asks again when the answer
// is lost.
func TestDangerIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		c := acquire(t, d, "k")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		answer := make(chan struct{})
		store.setAfter(only("Renew", func(c call) error {
			<-answer
			if c.nth == 1 {
				return errNet
			}
			return nil
		}))
		returned := make(chan error, 1)
		go func() { returned <- dedup.Danger(run) }()
		synctest.Wait()
		select {
		case err := <-returned:
			t.Fatalf("Danger returned %v before the store did", err)
		default:
		}
		close(answer)
		if err := <-returned; err != nil {
			t.Fatal(err)
		}
		if n := store.count("Renew"); n != 2 {
			t.Errorf("%d writes", n)
		}
		store.forgetCalls()
		if err := dedup.Danger(run); err != nil || store.count() != 0 {
			t.Errorf("the second Danger: %v, %d calls", err, store.count())
		}
		if rec := lookup(t, store, "k"); !rec.Danger {
			t.Error("Danger has returned nil, and the key is not dangerous")
		}
	})
}

// An effect whose Danger the store has not acknowledged must not begin.
func TestDangerFailsClosed(t *testing.T) {
	for name, test := range map[string]struct {
		store func(*hooked)
		want  error
	}{
		"store down":      {func(s *hooked) { s.setBefore(only("Renew", down)) }, dedup.ErrUnknown},
		"replies lost":    {func(s *hooked) { s.setAfter(only("Renew", down)) }, dedup.ErrUnknown},
		"answer too late": {func(s *hooked) { s.setAfter(only("Renew", func(call) error { time.Sleep(lease); return nil })) }, dedup.ErrLeaseLost},
		"answered too late by a server that was replaced": {func(s *hooked) {
			s.setAfter(only("Renew", func(c call) error {
				if c.nth == 1 { // and renewals go on elsewhere
					time.Sleep(lease)
				}
				return nil
			}))
		}, dedup.ErrLeaseLost},
		"store that hangs": {func(s *hooked) { s.setBefore(only("Renew", hang)) }, dedup.ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d := newDeduper(t, store, nil)
				test.store(store)
				_, err := do(t, d, "k", func(ctx context.Context) (string, error) {
					err := dedup.Danger(ctx)
					wantErr(t, err, test.want)
					store.setBefore(nil)
					store.setAfter(nil)
					return "", dedup.NotBegun(err)
				})
				wantErr(t, err, test.want)
				wantState(t, store, "k", dedup.StateReleased)
			})
		})
	}
}

func TestDangerOfALateOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaused(t)
		c := acquire(t, p.a, "k")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		if first, err := p.b.Mark(t.Context(), "k"); !first || err != nil { // somebody else's word
			t.Fatal(first, err)
		}
		wantErr(t, dedup.Danger(run), dedup.ErrLeaseLost)
		wantErr(t, context.Cause(run), dedup.ErrLeaseLost)
		p.seen.want(t, "lease lost", 1)
		wantErr(t, dedup.Danger(run), dedup.ErrLeaseLost)
		wantState(t, p.store, "k", dedup.StateSucceeded)
	})
	synctest.Test(t, func(t *testing.T) {
		p := newPaused(t)
		c := acquire(t, p.a, "k")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		p.takeover(t)
		writes := p.store.count("Renew")
		wantErr(t, dedup.Danger(run), dedup.ErrLeaseLost)
		if n := p.store.count("Renew"); n != writes {
			t.Error("a claim that is known to be lost asks the store")
		}
		if lookup(t, p.store, "k").Danger {
			t.Error("a late owner's danger is on the new owner's claim")
		}
	})
}

func TestDangerOutsideAnAttempt(t *testing.T) {
	var input *dedup.InputError
	if err := dedup.Danger(t.Context()); !errors.As(err, &input) || input.Field != "Context" {
		t.Errorf("outside an attempt: %v", err)
	}
	if err := dedup.Danger(nil); !errors.As(err, &input) { //nolint:staticcheck // on purpose
		t.Errorf("nil: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, dedup.Memory(10), nil)
		var kept context.Context
		_, err := do(t, d, "k", func(ctx context.Context) (string, error) { kept = ctx; return "v", nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := dedup.Danger(kept); !errors.As(err, &input) {
			t.Errorf("after the end: %v", err)
		}
	})
}

func TestDangerOfACancelledCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		_, err := do(t, d, "k", func(ctx context.Context) (string, error) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			err := dedup.Danger(ctx)
			if !dedup.OutcomeUnknown(err) || !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			return "", err
		})
		wantErr(t, err, context.Canceled)
		wantState(t, store, "k", dedup.StateReleased)
	})
}

// Where nothing is claimed, nothing is declared; and an observer fails nobody.
func TestDangerWithoutAClaim(t *testing.T) {
	for name, mode := range map[string]func(*journal) func(*dedup.Config){"observe": observing, "fail open": failingOpen} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := hook()
				d := newDeduper(t, store, mode(&journal{}))
				if name == "observe" {
					acquire(t, newDeduper(t, store.inner, nil), "k")
				} else {
					store.setBefore(only("Claim", down))
				}
				if _, err := do(t, d, "k", dangerous(t, func() error { return nil })); err != nil {
					t.Error(err)
				}
				if n := store.count("Renew"); n != 0 {
					t.Errorf("%d declarations", n)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, observing(&journal{}))
		if _, err := do(t, d, "won", dangerous(t, func() error { return errBusy })); !errors.Is(err, errBusy) {
			t.Error(err)
		}
		wantState(t, store, "won", dedup.StateUncertain) // recorded for real
		store.setBefore(only("Renew", down))
		if _, err := do(t, d, "down", dangerous(t, func() error { return nil })); err != nil {
			t.Error(err)
		}
	})
}

// Many handlers that begin at once share their round trips.
func TestDangersShareABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		store.setBefore(only("Renew", func(call) error { time.Sleep(time.Millisecond); return nil }))
		const handlers = 500
		done := make(chan error, handlers)
		for i := range handlers {
			go func() {
				_, err := do(t, d, string(rune('a'+i%26))+string(rune('0'+i/26)), dangerous(t, func() error { return nil }))
				done <- err
			}()
		}
		for range handlers {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := store.count("Renew"); n > 50 {
			t.Errorf("%d handlers took %d round trips", handlers, n)
		}
	})
}
