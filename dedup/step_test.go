package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceward/onceward/dedup"
)

// once is a step that counts its runs.
func once(n *int, value string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { *n++; return value, nil }
}

func wantStep(t *testing.T, ctx context.Context, name, want string, n *int) {
	t.Helper()
	got, err := dedup.Step(ctx, name, once(n, want))
	if err != nil || got != want {
		t.Errorf("step %q: %q, %v; want %q", name, got, err, want)
	}
}

// attempt runs fn as the handler of one attempt of key "k", which then fails.
func attempt(t *testing.T, d *dedup.Deduper, fn func(ctx context.Context)) {
	t.Helper()
	_, err := do(t, d, "k", func(ctx context.Context) (string, error) { fn(ctx); return "", errBusy })
	if !errors.Is(err, errBusy) {
		t.Fatal(err)
	}
}

// A rerun skips finished steps and gets their values, after a release, a crash and out of
// uncertainty. A finished key forgets its steps.
func TestStepsSurviveWhatIsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		runs := 0
		attempt(t, d, func(ctx context.Context) {
			wantStep(t, ctx, "charge", "ch_1", &runs)
			wantStep(t, ctx, "charge", "ch_1", &runs)
		})
		attempt(t, d, func(ctx context.Context) { wantStep(t, ctx, "charge", "ch_1", &runs) })

		dying := newProcess(t, store.inner)
		c := acquire(t, dying.d, "k")
		run, stop := c.KeepAlive(t.Context())
		wantStep(t, run, "charge", "ch_1", &runs)
		wantStep(t, run, "mail", "sent", &runs)
		dying.die()
		stop()
		time.Sleep(lease)

		attempt(t, d, func(ctx context.Context) {
			if err := dedup.Danger(ctx); err != nil {
				t.Error(err)
			}
			wantStep(t, ctx, "mail", "sent", &runs)
		})
		wantState(t, store, "k", dedup.StateUncertain)
		asking := newDeduper(t, store, answering(dedup.StateReleased, ""))
		res, err := do(t, asking, "k", func(ctx context.Context) (string, error) {
			wantStep(t, ctx, "charge", "ch_1", &runs)
			wantStep(t, ctx, "mail", "sent", &runs)
			return "v", nil
		})
		if err != nil || res.Attempt != 5 {
			t.Errorf("%+v, %v", res, err)
		}
		if runs != 2 {
			t.Errorf("two steps ran %d times", runs)
		}
		if rec := wantState(t, store, "k", dedup.StateSucceeded); rec.Steps != nil {
			t.Error("a key that is done keeps its steps")
		}
	})
}

func TestStepKeepsValuesOfAllKinds(t *testing.T) {
	type receipt struct {
		ID    string
		Cents int
	}
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, dedup.Memory(10), nil)
		for try := range 2 {
			attempt(t, d, func(ctx context.Context) {
				stepValue(t, ctx, try, "json", receipt{"r", 5})
				stepValue(t, ctx, try, "string", "")
				stepValue(t, ctx, try, "bytes", []byte{0, 255})
				stepValue(t, ctx, try, "no bytes", []byte{})
				stepValue(t, ctx, try, "nil bytes", []byte(nil))
				stepValue(t, ctx, try, "nothing", struct{}{})
				stepValue(t, ctx, try, "pointer", (*int)(nil))
			})
		}
	})
}

func stepValue[T any](t *testing.T, ctx context.Context, try int, name string, want T) {
	t.Helper()
	got, err := dedup.Step(ctx, name, func(context.Context) (T, error) {
		if try > 0 {
			t.Errorf("%s ran again", name)
		}
		return want, nil
	})
	if err != nil || fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
		t.Errorf("%s: %#v, %v; want %#v", name, got, err, want)
	}
}

func TestStepThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		attempt(t, d, func(ctx context.Context) {
			got, err := dedup.Step(ctx, "s", func(context.Context) (string, error) { return "part", errNet })
			if got != "part" || !errors.Is(err, errNet) {
				t.Errorf("%q, %v", got, err)
			}
			apart(func() {
				_, _ = dedup.Step(ctx, "s", func(context.Context) (string, error) { panic("boom") })
			})
			if n := store.count("Renew"); n != 0 {
				t.Errorf("a failed step makes %d writes", n)
			}
			n := 0
			wantStep(t, ctx, "s", "v", &n)
		})
	})
}

func TestStepRefusesBeforeItRuns(t *testing.T) {
	never := func(context.Context) (string, error) { t.Error("ran"); return "", nil }
	wantInput := func(err error, field string) {
		t.Helper()
		var input *dedup.InputError
		if !errors.As(err, &input) || input.Field != field {
			t.Errorf("got %v, want an InputError for %s", err, field)
		}
	}
	_, err := dedup.Step(t.Context(), "s", never)
	wantInput(err, "Context")
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, dedup.Memory(10), nil)
		attempt(t, d, func(ctx context.Context) {
			for _, name := range []string{"", strings.Repeat("x", 65), "a\x00b", "\xff"} {
				_, err := dedup.Step(ctx, name, never)
				wantInput(err, "Name")
			}
			_, err := dedup.Step[string](ctx, "s", nil)
			wantInput(err, "Func")
			_, err = dedup.Step(ctx, "outer", func(ctx context.Context) (string, error) {
				_, err := dedup.Step(ctx, "outer", never)
				wantInput(err, "Name")
				return "", nil
			})
			if err != nil {
				t.Error(err)
			}
			n := 0
			for i := range 63 {
				wantStep(t, ctx, fmt.Sprint("s", i), "v", &n)
			}
			_, err = dedup.Step(ctx, "the 65th", never)
			wantInput(err, "Name")
			wantStep(t, ctx, "s0", "v", &n) // a finished one does not count as new
			if n != 63 {
				t.Errorf("%d steps ran", n)
			}
		})
		var kept context.Context
		attempt(t, d, func(ctx context.Context) { kept = ctx })
		_, err := dedup.Step(kept, "late", never)
		wantInput(err, "Context")
	})
}

// Names always fit: it is values that give way.
func TestStepWhoseValueIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		large := strings.Repeat("x", 40<<10)
		ran := 0
		attempt(t, d, func(ctx context.Context) {
			wantStep(t, ctx, "first", large, &ran)
			wantStep(t, ctx, "second", large, &ran)
			if _, err := dedup.Step(ctx, "channel", func(context.Context) (chan int, error) { ran++; return nil, nil }); err != nil {
				t.Error(err)
			}
			for i := range 61 {
				wantStep(t, ctx, strings.Repeat("n", 62)+fmt.Sprintf("%02d", i), large, &ran)
			}
		})
		if n := len(lookup(t, store, "k").Steps); n > 64<<10 {
			t.Errorf("%d bytes of steps", n)
		}
		attempt(t, d, func(ctx context.Context) {
			wantStep(t, ctx, "first", large, &ran)
			for _, name := range []string{"second", strings.Repeat("n", 62) + "60"} {
				got, err := dedup.Step(ctx, name, once(&ran, ""))
				if got != "" || !errors.Is(err, dedup.ErrNoResult) {
					t.Errorf("%q: %d bytes, %v", name, len(got), err)
				}
			}
			_, err := dedup.Step(ctx, "channel", func(context.Context) (chan int, error) { ran++; return nil, nil })
			wantErr(t, err, dedup.ErrNoResult)
		})
		if ran != 64 {
			t.Errorf("64 steps ran %d times", ran)
		}
	})
}

// A late owner records nothing, and does not run a step once it knows.
func TestStepOfALateOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaused(t)
		c := acquire(t, p.a, "k")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		n := 0
		got, err := dedup.Step(run, "s", func(ctx context.Context) (string, error) {
			n++
			if first, err := p.b.Mark(t.Context(), "k"); !first || err != nil {
				t.Fatal(first, err)
			}
			if err := p.b.Forget(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			acquire(t, p.b, "k")
			return "late", nil
		})
		if got != "late" || !errors.Is(err, dedup.ErrLeaseLost) {
			t.Errorf("%q, %v", got, err)
		}
		wantErr(t, context.Cause(run), dedup.ErrLeaseLost)
		if steps := lookup(t, p.store, "k").Steps; steps != nil {
			t.Errorf("a late owner has recorded %q", steps)
		}
		_, err = dedup.Step(run, "next", once(&n, ""))
		wantErr(t, err, dedup.ErrLeaseLost)
		if n != 1 {
			t.Errorf("%d steps ran", n)
		}
	})
}

// Nobody knows whether a step is on record: its value comes with the error, and in this
// attempt it does not run again.
func TestStepThatCannotBeRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		n := 0
		attempt(t, d, func(ctx context.Context) {
			store.setBefore(only("Renew", down))
			got, err := dedup.Step(ctx, "s", once(&n, "v"))
			if got != "v" || !dedup.OutcomeUnknown(err) || !errors.Is(err, errNet) {
				t.Errorf("%q, %v", got, err)
			}
			if _, err := dedup.Step(ctx, "s", once(&n, "v")); !dedup.OutcomeUnknown(err) {
				t.Errorf("still down: %v", err)
			}
			store.setBefore(nil)
			wantStep(t, ctx, "s", "v", &n)
		})
		attempt(t, d, func(ctx context.Context) { wantStep(t, ctx, "s", "v", &n) })
		if n != 1 {
			t.Errorf("the step ran %d times", n)
		}
		attempt(t, d, func(ctx context.Context) {
			store.setAfter(only("Renew", lostTimes("Renew", 1)))
			wantStep(t, ctx, "lost reply", "v", &n)
		})
	})
}

// The caller of a step that has run may have gone. The step is recorded anyway.
func TestStepIsRecordedForACallerThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, dedup.Memory(10), nil)
		n := 0
		attempt(t, d, func(ctx context.Context) {
			ctx, cancel := context.WithCancel(ctx)
			got, err := dedup.Step(ctx, "s", func(context.Context) (string, error) { n++; cancel(); return "v", nil })
			if got != "v" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
		attempt(t, d, func(ctx context.Context) { wantStep(t, ctx, "s", "v", &n) })
		if n != 1 {
			t.Errorf("the step ran %d times", n)
		}
	})
}

// A write of fewer steps that the network delivers late takes nothing back.
func TestStepsAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		n := make([]int, 20)
		attempt(t, d, func(ctx context.Context) {
			store.setBefore(only("Renew", func(c call) error {
				time.Sleep(time.Duration(100-c.nth) * time.Millisecond) // the first come last
				return nil
			}))
			done := make(chan struct{})
			for i := range n {
				go func() {
					wantStep(t, ctx, fmt.Sprint(i), fmt.Sprint("v", i), &n[i])
					done <- struct{}{}
				}()
			}
			for range n {
				<-done
			}
			store.setBefore(nil)
		})
		attempt(t, d, func(ctx context.Context) {
			for i := range n {
				wantStep(t, ctx, fmt.Sprint(i), fmt.Sprint("v", i), &n[i])
				if n[i] != 1 {
					t.Errorf("step %d ran %d times", i, n[i])
				}
			}
		})
	})
}

// A record of a newer version is neither read nor overwritten, and its steps do not run.
func TestStepsThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		n := 0
		attempt(t, newDeduper(t, &planting{store, []byte("\x02newer")}, nil), func(ctx context.Context) {
			_, err := dedup.Step(ctx, "s", once(&n, "v"))
			wantErr(t, err, dedup.ErrUnreadable)
		})
		if n != 0 || store.count("Renew") != 0 {
			t.Errorf("%d runs, %d writes", n, store.count("Renew"))
		}
	})
}

// planting shows steps of its own in every claim.
type planting struct {
	*hooked
	steps []byte
}

func (p *planting) Claim(ctx context.Context, reqs []dedup.ClaimRequest) []dedup.Answer {
	answers := p.hooked.Claim(ctx, reqs)
	for i := range answers {
		answers[i].Record.Steps = p.steps
	}
	return answers
}

func TestStepInObserveMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, observing(&journal{}))
		n := 0
		for range 2 {
			attempt(t, d, func(ctx context.Context) { wantStep(t, ctx, "s", "v", &n) })
		}
		if n != 2 || store.count("Renew") != 0 {
			t.Errorf("%d runs, %d writes", n, store.count("Renew"))
		}
	})
}

func TestStepOfAnotherType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, dedup.Memory(10), nil)
		n := 0
		attempt(t, d, func(ctx context.Context) { wantStep(t, ctx, "s", "no number", &n) })
		attempt(t, d, func(ctx context.Context) {
			_, err := dedup.Step(ctx, "s", func(context.Context) (int, error) { n++; return 1, nil })
			wantErr(t, err, dedup.ErrUnreadable)
		})
		if n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}
