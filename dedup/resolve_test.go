package dedup_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup"
)

// answering is a Resolve that knows.
func answering(state dedup.State, data string) func(*dedup.Config) {
	return resolving(func(context.Context, string, dedup.Record) (dedup.State, []byte, error) {
		if data == "" {
			return state, nil, nil
		}
		return state, []byte(data), nil
	})
}

func resolving(fn func(context.Context, string, dedup.Record) (dedup.State, []byte, error)) func(*dedup.Config) {
	return func(c *dedup.Config) { c.Resolve = fn }
}

// bank is a resolver's test: an uncertain key, and a Deduper that asks about it.
type bank struct {
	*testing.T
	store *hooked
	seen  *journal
	d     *dedup.Deduper
}

func newBank(t *testing.T, change func(*dedup.Config)) *bank {
	b := &bank{T: t, store: hook(), seen: &journal{}}
	b.d = newDeduper(t, b.store, func(c *dedup.Config) {
		change(c)
		c.Observer = b.seen.observer()
	})
	uncertainKey(t, newDeduper(t, b.store.inner, nil), b.store, "k")
	return b
}

func TestResolveThatKnows(t *testing.T) {
	t.Run("succeeded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBank(t, answering(dedup.StateSucceeded, "ch_1"))
			res, err := do(t, b.d, "k", mustNotRun(t))
			if err != nil || res.Value != "ch_1" || res.Outcome != dedup.Duplicate || res.Attempt != 2 {
				t.Errorf("%+v, %v", res, err)
			}
			rec := wantState(t, b.store, "k", dedup.StateSucceeded)
			if string(rec.Result) != "ch_1" || rec.Danger {
				t.Errorf("%+v", rec)
			}
			b.seen.want(t, "ended", 1)
			if told := b.seen.of("claimed"); len(told) != 1 || told[0].Outcome != dedup.Duplicate {
				t.Errorf("told %+v", told)
			}
			wantOutcome(t, claim(t, b.d, "k"), dedup.Duplicate)
		})
	})
	t.Run("failed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBank(t, answering(dedup.StateFailed, "card refused"))
			for range 2 {
				_, err := do(t, b.d, "k", mustNotRun(t))
				var failed *dedup.FailedError
				if !errors.As(err, &failed) || failed.Message != "card refused" {
					t.Errorf("got %v", err)
				}
			}
			wantState(t, b.store, "k", dedup.StateFailed)
		})
	})
	t.Run("failed, where no failure is kept", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBank(t, func(c *dedup.Config) {
				answering(dedup.StateFailed, "card refused")(c)
				c.SeenOnly = true
			})
			for range 2 { // a nil error would have the caller acknowledge a success
				_, err := dedup.Do(t.Context(), b.d, "k", func(context.Context) (struct{}, error) {
					t.Error("the effect ran again")
					return struct{}{}, nil
				})
				var failed *dedup.FailedError
				if !errors.As(err, &failed) || failed.Message != "card refused" {
					t.Errorf("got %v", err)
				}
				wantState(t, b.store, "k", dedup.StateUncertain)
			}
		})
	})
	t.Run("large result", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBank(t, answering(dedup.StateSucceeded, strings.Repeat("x", 1<<20)))
			_, err := do(t, b.d, "k", mustNotRun(t))
			wantErr(t, err, dedup.ErrNoResult)
			wantState(t, b.store, "k", dedup.StateSucceeded)
		})
	})
	t.Run("released", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBank(t, answering(dedup.StateReleased, ""))
			res, err := do(t, b.d, "k", returns("v"))
			if err != nil || res.Outcome != dedup.Acquired || res.Attempt != 2 {
				t.Errorf("%+v, %v", res, err)
			}
			wantState(t, b.store, "k", dedup.StateSucceeded)
		})
	})
}

// Claim by hand may keep alive and end what is to run again.
func TestResolveThenClaimByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, answering(dedup.StateReleased, ""))
		c := acquire(t, b.d, "k")
		if !c.Record.Danger || c.Attempt != 2 {
			t.Errorf("%+v", c.Record)
		}
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		time.Sleep(5 * lease)
		if err := context.Cause(run); err != nil {
			t.Fatal(err)
		}
		if err := c.Complete(t.Context(), nil); err != nil {
			t.Error(err)
		}
	})
}

// The rerun that ends without saying how is asked about again, although it had not come
// to its own Danger.
func TestARerunStaysDangerous(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*bank)
		want dedup.State
	}{
		"error": {func(b *bank) { _, _ = do(b.T, b.d, "k", fails(errBusy)) }, dedup.StateUncertain},
		"panic": {func(b *bank) {
			apart(func() { _, _ = do(b.T, b.d, "k", func(context.Context) (string, error) { panic("x") }) })
		}, dedup.StateUncertain},
		"lapse":     {func(b *bank) { acquire(b.T, b.d, "k"); time.Sleep(lease) }, dedup.StateUncertain},
		"not begun": {func(b *bank) { _, _ = do(b.T, b.d, "k", fails(dedup.NotBegun(errBusy))) }, dedup.StateReleased},
		"permanent": {func(b *bank) { _, _ = do(b.T, b.d, "k", fails(dedup.Permanent(errBusy))) }, dedup.StateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBank(t, answering(dedup.StateReleased, ""))
				test.end(b)
				wantState(t, b.store, "k", test.want)
			})
		})
	}
}

func fails(err error) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return "", err }
}

// A key that is still unknown stays uncertain, and the next call asks about it.
func TestResolveThatDoesNotKnow(t *testing.T) {
	for name, test := range map[string]struct {
		resolve   func(context.Context, string, dedup.Record) (dedup.State, []byte, error)
		cause     error
		retryable bool
	}{
		"still unknown": {func(context.Context, string, dedup.Record) (dedup.State, []byte, error) {
			return dedup.StateUncertain, nil, nil
		}, nil, true},
		"error": {func(context.Context, string, dedup.Record) (dedup.State, []byte, error) {
			return dedup.StateSucceeded, []byte("no"), errNet
		}, errNet, true},
		"nobody will know": {func(context.Context, string, dedup.Record) (dedup.State, []byte, error) {
			return dedup.StateUncertain, nil, dedup.Permanent(errNet)
		}, errNet, false},
		"nonsense": {func(context.Context, string, dedup.Record) (dedup.State, []byte, error) {
			return dedup.StateInProgress, nil, nil
		}, nil, false},
		"nothing": {func(context.Context, string, dedup.Record) (dedup.State, []byte, error) { return 0, nil, nil }, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBank(t, resolving(test.resolve))
				for want := 2; want <= 3; want++ {
					c := claim(t, b.d, "k")
					wantOutcome(t, c, dedup.Uncertain)
					wantErr(t, c.Err(), dedup.ErrUncertain)
					if test.cause != nil {
						wantErr(t, c.Err(), test.cause)
					}
					if dedup.CanRetry(c.Err()) != test.retryable {
						t.Errorf("retryable %t: %v", !test.retryable, c.Err())
					}
					rec := wantState(t, b.store, "k", dedup.StateUncertain)
					if rec.Attempt != want || c.Attempt != want {
						t.Errorf("attempt %d, told %d, want %d", rec.Attempt, c.Attempt, want)
					}
				}
				_, err := do(t, b.d, "k", mustNotRun(t))
				wantErr(t, err, dedup.ErrUncertain)
			})
		})
	}
}

func TestResolveThatPanics(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBank(t, resolving(func(context.Context, string, dedup.Record) (dedup.State, []byte, error) {
					end()
					return dedup.StateReleased, nil, nil
				}))
				went := false
				apart(func() {
					defer func() { went = recover() != nil || name == "goexit" }()
					_, _ = b.d.Claim(t.Context(), "k")
				})
				if !went {
					t.Error("the panic did not go on")
				}
				wantState(t, b.store, "k", dedup.StateUncertain)
			})
		})
	}
}

// Two processes ask one bank at a time; the other finds the key in flight.
func TestOneAsksAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asking, questions atomic.Int32
		ask := func(context.Context, string, dedup.Record) (dedup.State, []byte, error) {
			if asking.Add(1) != 1 {
				t.Error("two ask at a time")
			}
			time.Sleep(3 * lease) // longer than the lease, which is renewed meanwhile
			asking.Add(-1)
			questions.Add(1)
			return dedup.StateSucceeded, []byte("ch_1"), nil
		}
		b := newBank(t, resolving(ask))
		other := newDeduper(t, b.store.inner, resolving(ask))
		waiting := newDeduper(t, b.store.inner, func(c *dedup.Config) { c.Resolve, c.Wait = ask, time.Hour })
		done := make(chan error, 2)
		go func() { _, err := do(t, b.d, "k", mustNotRun(t)); done <- err }()
		synctest.Wait()
		go func() { _, err := do(t, waiting, "k", mustNotRun(t)); done <- err }()
		time.Sleep(2 * lease)
		for _, d := range []*dedup.Deduper{other, b.d} {
			if c := claim(t, d, "k"); c.Outcome != dedup.InFlight {
				t.Errorf("while it is asked about: %v", c.Outcome)
			}
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := questions.Load(); n != 1 {
			t.Errorf("%d questions", n)
		}
	})
}

// Resolve learns which attempt it is, asks under the key that the effect was sent with,
// and may look at finished steps.
func TestWhatResolveIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		sent, n := "", 0
		_, err := do(t, newDeduper(t, store, nil), "k", func(ctx context.Context) (string, error) {
			a, _ := dedup.FromContext(ctx)
			sent = a.DownstreamKey("bank")
			wantStep(t, ctx, "order", "o_1", &n)
			return "", errors.Join(errBusy, dedup.Danger(ctx))
		})
		wantErr(t, err, errBusy)
		d := newDeduper(t, store, resolving(func(ctx context.Context, key string, rec dedup.Record) (dedup.State, []byte, error) {
			a, ok := dedup.FromContext(ctx)
			if !ok || key != "k" || a.Number != 2 || a.DownstreamKey("bank") != sent {
				t.Errorf("key %q, attempt %+v", key, a)
			}
			if rec.State != dedup.StateUncertain || !rec.Danger || rec.Attempt != 2 {
				t.Errorf("record %+v", rec)
			}
			wantStep(t, ctx, "order", "o_1", &n)
			return dedup.StateSucceeded, nil, nil
		}))
		wantOutcome(t, claim(t, d, "k"), dedup.Duplicate)
		if n != 1 {
			t.Errorf("the step ran %d times", n)
		}
	})
}

// A resolver whose claim is lost is told, and what it says then counts for nothing.
func TestResolveThatLosesItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(t, resolving(func(ctx context.Context, _ string, _ dedup.Record) (dedup.State, []byte, error) {
			b.store.setBefore(only("Renew", down))
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), dedup.ErrLeaseLost)
			return dedup.StateReleased, nil, nil
		}))
		_, err := b.d.Claim(t.Context(), "k")
		if !dedup.OutcomeUnknown(err) || !errors.Is(err, dedup.ErrLeaseLost) {
			t.Errorf("got %v", err)
		}
		wantState(t, b.store, "k", dedup.StateUncertain)
	})
}

// A caller that leaves, or a Close that gives up, decides nothing about the key.
func TestResolveThatIsInterrupted(t *testing.T) {
	for _, name := range []string{"caller", "close"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asking := make(chan struct{})
				b := &bank{store: hook()}
				d, err := dedup.New(b.store, dedup.Config{
					Namespace: "test", Window: time.Hour, LeaseTTL: 10 * time.Second,
					Resolve: func(ctx context.Context, _ string, _ dedup.Record) (dedup.State, []byte, error) {
						close(asking)
						<-ctx.Done()
						return dedup.StateReleased, nil, ctx.Err()
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				uncertainKey(t, newDeduper(t, b.store.inner, nil), b.store, "k")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() { _, err := d.Claim(ctx, "k"); done <- err }()
				<-asking
				want := dedup.ErrClosed
				if name == "caller" {
					want = context.Canceled
					cancel()
				} else if err := closeWithin(d, time.Second); err == nil {
					t.Error("Close did not wait")
				}
				if err := <-done; !errors.Is(err, want) || !dedup.OutcomeUnknown(err) {
					t.Errorf("got %v", err)
				}
				wantState(t, b.store, "k", dedup.StateUncertain)
				_ = closeWithin(d, time.Minute)
			})
		})
	}
}

// The answer is known, and the store is down: nobody may act on it.
func TestResolveThatCannotBeRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(t, resolving(func(context.Context, string, dedup.Record) (dedup.State, []byte, error) {
			b.store.setBefore(down)
			return dedup.StateSucceeded, nil, nil
		}))
		_, err := b.d.Claim(t.Context(), "k")
		if !dedup.OutcomeUnknown(err) || !errors.Is(err, errNet) {
			t.Errorf("got %v", err)
		}
		b.store.setBefore(nil)
		time.Sleep(lease)
		wantState(t, b.store, "k", dedup.StateUncertain)
	})
}

// Somebody marks the key while the bank is asked: that is what the caller gets.
func TestResolveThatIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bank
		b = newBank(t, resolving(func(ctx context.Context, _ string, _ dedup.Record) (dedup.State, []byte, error) {
			if _, err := newDeduper(t, b.store.inner, nil).Mark(context.WithoutCancel(ctx), "k"); err != nil {
				t.Error(err)
			}
			return dedup.StateFailed, []byte("no"), nil
		}))
		c := claim(t, b.d, "k")
		wantOutcome(t, c, dedup.Duplicate)
		if c.Record.State != dedup.StateSucceeded {
			t.Errorf("%+v", c.Record)
		}
	})
}

// Calls that never wait for a downstream answer Uncertain, and no other key is asked about.
func TestResolveIsNotForEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, resolving(func(context.Context, string, dedup.Record) (dedup.State, []byte, error) {
			t.Error("asked")
			return dedup.StateUncertain, nil, nil
		}))
		wantOutcome(t, claimBatch(t, b.d, keyed("k"))[0], dedup.Uncertain)
		_, err := b.d.Seen(t.Context(), "k")
		wantErr(t, err, dedup.ErrUncertain)
		wantState(t, b.store, "k", dedup.StateUncertain)

		if res, err := do(t, b.d, "other", returns("v")); err != nil || res.Outcome != dedup.Acquired {
			t.Errorf("%+v, %v", res, err)
		}
		_, err = do(t, b.d, "released", fails(errBusy))
		wantErr(t, err, errBusy)
		if res, err := do(t, b.d, "released", returns("v")); err != nil || res.Attempt != 2 {
			t.Errorf("%+v, %v", res, err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // Observe mode runs, and reports
		b := newBank(t, func(c *dedup.Config) {
			c.ObserveOnly = true
			c.Resolve = func(context.Context, string, dedup.Record) (dedup.State, []byte, error) {
				t.Error("asked")
				return dedup.StateUncertain, nil, nil
			}
		})
		if n := runs(t, b.d, "k"); n != 1 {
			t.Errorf("%d runs", n)
		}
		if skip := b.seen.of("would skip"); len(skip) != 1 || skip[0].Outcome != dedup.Uncertain {
			t.Errorf("%+v", skip)
		}
		wantState(t, b.store, "k", dedup.StateUncertain)
	})
}
