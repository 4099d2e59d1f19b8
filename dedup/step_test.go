package dedup_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// once is a step that counts its runs.
func once(n *int, value string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { *n++; return value, nil }
}

func wantStep(t *testing.T, ctx context.Context, name, want string, n *int) {
	t.Helper()
	got, err := dedup.Step(ctx, name, once(n, want))
	assert.NoError(t, err, "step %q", name)
	assert.Equal(t, want, got, "step %q", name)
}

// attempt runs fn as the handler of one attempt of key "k", which then fails.
func attempt(t *testing.T, d *dedup.Deduper, fn func(ctx context.Context)) {
	t.Helper()
	_, err := do(t, d, "k", func(ctx context.Context) (string, error) {
		fn(ctx)
		return "", errBusy
	})
	require.ErrorIs(t, err, errBusy)
}

// A rerun skips finished steps and gets their values, also after a release, a crash, and an
// uncertain attempt. A finished key forgets its steps.
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
			assert.NoError(t, dedup.MarkIrreversible(ctx))
			wantStep(t, ctx, "mail", "sent", &runs)
		})
		wantState(t, store, "k", driver.StateUncertain)
		asking := newDeduper(t, store, answering(dedup.DidNotHappen()))
		res, err := do(t, asking, "k", func(ctx context.Context) (string, error) {
			wantStep(t, ctx, "charge", "ch_1", &runs)
			wantStep(t, ctx, "mail", "sent", &runs)
			return "v", nil
		})
		require.NoError(t, err)
		assert.Equal(t, 5, res.Attempt)
		assert.Equal(t, 2, runs, "two steps")
		rec := wantState(t, store, "k", driver.StateSucceeded)
		assert.Nil(t, rec.Steps, "a key that is done keeps its steps")
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
		assert.LessOrEqual(t, try, 0, "%s ran again", name)
		return want, nil
	})
	require.NoError(t, err, name)
	assert.Equal(t, fmt.Sprintf("%#v", want), fmt.Sprintf("%#v", got), name)
}

func TestStepThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		attempt(t, d, func(ctx context.Context) {
			got, err := dedup.Step(ctx, "s", func(context.Context) (string, error) {
				return "part", errNet
			})
			assert.Equal(t, "part", got)
			assert.ErrorIs(t, err, errNet)
			apart(func() {
				_, _ = dedup.Step(ctx, "s", func(context.Context) (string, error) { panic("boom") })
			})
			assert.Equal(t, 0, store.count("Renew"), "renewals of a failed step")
			n := 0
			wantStep(t, ctx, "s", "v", &n)
		})
	})
}

func TestStepRefusesBeforeItRuns(t *testing.T) {
	never := func(context.Context) (string, error) { t.Error("ran"); return "", nil }
	_, err := dedup.Step(t.Context(), "s", never)
	wantInput(t, err, "Context")
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, dedup.Memory(10), nil)
		attempt(t, d, func(ctx context.Context) {
			for _, name := range []string{"", strings.Repeat("x", 65), "a\x00b", "\xff"} {
				_, err := dedup.Step(ctx, name, never)
				wantInput(t, err, "Name")
			}
			_, err := dedup.Step[string](ctx, "s", nil)
			wantInput(t, err, "Func")
			_, err = dedup.Step(ctx, "outer", func(ctx context.Context) (string, error) {
				_, err := dedup.Step(ctx, "outer", never)
				wantInput(t, err, "Name")
				return "", nil
			})
			assert.NoError(t, err)
			n := 0
			for i := range 63 {
				wantStep(t, ctx, fmt.Sprint("s", i), "v", &n)
			}
			_, err = dedup.Step(ctx, "the 65th", never)
			wantInput(t, err, "Name")
			wantStep(t, ctx, "s0", "v", &n) // a finished one does not count as new
			assert.Equal(t, 63, n)
		})
		var kept context.Context
		attempt(t, d, func(ctx context.Context) { kept = ctx })
		_, err := dedup.Step(kept, "late", never)
		wantInput(t, err, "Context")
	})
}

// The names of steps always fit. If there is too little room, values are dropped.
func TestStepWhoseValueIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		large := strings.Repeat("x", 40<<10)
		ran := 0
		attempt(t, d, func(ctx context.Context) {
			wantStep(t, ctx, "first", large, &ran)
			wantStep(t, ctx, "second", large, &ran)
			_, err := dedup.Step(ctx, "channel", func(context.Context) (chan int, error) {
				ran++
				return nil, nil
			})
			assert.NoError(t, err)
			for i := range 61 {
				wantStep(t, ctx, strings.Repeat("n", 62)+fmt.Sprintf("%02d", i), large, &ran)
			}
		})
		assert.LessOrEqual(t, len(lookup(t, store, "k").Steps), 64<<10, "bytes of steps")
		attempt(t, d, func(ctx context.Context) {
			wantStep(t, ctx, "first", large, &ran)
			for _, name := range []string{"second", strings.Repeat("n", 62) + "60"} {
				got, err := dedup.Step(ctx, name, once(&ran, ""))
				assert.Empty(t, got, name)
				assert.ErrorIs(t, err, dedup.ErrNoResult, name)
			}
			_, err := dedup.Step(ctx, "channel", func(context.Context) (chan int, error) {
				ran++
				return nil, nil
			})
			require.ErrorIs(t, err, dedup.ErrNoResult)
		})
		assert.Equal(t, 64, ran, "64 steps")
	})
}

// A late owner records no step, and runs none once it knows that its lease is lost.
func TestStepOfALateOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaused(t)
		c := acquire(t, p.a, "k")
		run, stop := c.KeepAlive(t.Context())
		defer stop()
		n := 0
		got, err := dedup.Step(run, "s", func(ctx context.Context) (string, error) {
			n++
			first, err := p.b.Mark(t.Context(), "k")
			require.True(t, first)
			require.NoError(t, err)
			require.NoError(t, p.b.Forget(t.Context(), "k"))
			acquire(t, p.b, "k")
			return "late", nil
		})
		assert.Equal(t, "late", got)
		assert.ErrorIs(t, err, dedup.ErrLeaseLost)
		require.ErrorIs(t, context.Cause(run), dedup.ErrLeaseLost)
		assert.Nil(t, lookup(t, p.store, "k").Steps, "a late owner has recorded")
		_, err = dedup.Step(run, "next", once(&n, ""))
		require.ErrorIs(t, err, dedup.ErrLeaseLost)
		assert.Equal(t, 1, n)
	})
}

// It is not known whether a step is on record. Its value is returned with the error, and the step
// does not run again in this attempt.
func TestStepThatCannotBeRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		n := 0
		attempt(t, d, func(ctx context.Context) {
			store.setBefore(only("Renew", down))
			got, err := dedup.Step(ctx, "s", once(&n, "v"))
			assert.Equal(t, "v", got)
			assert.True(t, dedup.OutcomeUnknown(err))
			assert.ErrorIs(t, err, errNet)
			_, err = dedup.Step(ctx, "s", once(&n, "v"))
			assert.True(t, dedup.OutcomeUnknown(err), "still down: %v", err)
			store.setBefore(nil)
			wantStep(t, ctx, "s", "v", &n)
		})
		attempt(t, d, func(ctx context.Context) { wantStep(t, ctx, "s", "v", &n) })
		assert.Equal(t, 1, n, "the step")
		attempt(t, d, func(ctx context.Context) {
			store.setAfter(only("Renew", lostTimes("Renew", 1)))
			wantStep(t, ctx, "lost reply", "v", &n)
		})
	})
}

// The caller may be gone when a step has run. The step is recorded anyway.
func TestStepIsRecordedForACallerThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, dedup.Memory(10), nil)
		n := 0
		attempt(t, d, func(ctx context.Context) {
			ctx, cancel := context.WithCancel(ctx)
			got, err := dedup.Step(ctx, "s", func(context.Context) (string, error) {
				n++
				cancel()
				return "v", nil
			})
			assert.Equal(t, "v", got)
			assert.NoError(t, err)
		})
		attempt(t, d, func(ctx context.Context) { wantStep(t, ctx, "s", "v", &n) })
		assert.Equal(t, 1, n, "the step")
	})
}

// A late write with fewer steps does not remove steps.
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
				assert.Equal(t, 1, n[i], "step %d", i)
			}
		})
	})
}

// A record of a newer version is neither read nor overwritten, and its steps do not run.
func TestStepsThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		n := 0
		attempt(t, newDeduper(t, &planting{store, []byte("\x02newer")}, nil),
			func(ctx context.Context) {
				_, err := dedup.Step(ctx, "s", once(&n, "v"))
				require.ErrorIs(t, err, driver.ErrUnreadable)
			})
		assert.Equal(t, 0, n)
		assert.Equal(t, 0, store.count("Renew"))
	})
}

// planting shows the same steps in the record of every claim.
type planting struct {
	*hooked
	steps []byte
}

func (p *planting) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
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
		assert.Equal(t, 2, n)
		assert.Equal(t, 0, store.count("Renew"))
	})
}

func TestStepOfAnotherType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, dedup.Memory(10), nil)
		n := 0
		attempt(t, d, func(ctx context.Context) { wantStep(t, ctx, "s", "no number", &n) })
		attempt(t, d, func(ctx context.Context) {
			_, err := dedup.Step(ctx, "s", func(context.Context) (int, error) {
				n++
				return 1, nil
			})
			require.ErrorIs(t, err, driver.ErrUnreadable)
		})
		assert.Equal(t, 1, n)
	})
}
