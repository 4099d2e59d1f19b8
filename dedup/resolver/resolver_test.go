package resolver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

func askNobody(context.Context, UncertainRecord) (dedup.Resolution, error) {
	return dedup.Resolution{}, nil
}

func TestConfig(t *testing.T) {
	tests := map[string]struct {
		cfg   Config
		field string // that is wrong
	}{
		"asks":                  {cfg: Config{Ask: askNobody, Window: time.Hour}},
		"holds":                 {cfg: Config{Policy: PolicyHold}},
		"reruns":                {cfg: Config{Policy: PolicyRerun}},
		"unknown policy":        {Config{Policy: 3}, "Config.Policy"},
		"asks nobody":           {Config{Window: time.Hour}, "Config.Ask"},
		"asks without a window": {Config{Ask: askNobody}, "Config.Window"},
		"holds and asks":        {Config{Policy: PolicyHold, Ask: askNobody}, "Config.Ask"},
		"negative lease":        {Config{Policy: PolicyHold, Lease: -1}, "Config.Lease"},
		"negative age":          {Config{Policy: PolicyHold, AlarmAge: -1}, "Config.AlarmAge"},
		"wait above its bound":  {Config{Policy: PolicyHold, Wait: 2, MaxWait: 1}, "Config.Wait"},
		"too many asks":         {Config{Policy: PolicyHold, MaxAsks: maxAsks + 1}, "Config.MaxAsks"},
		"negative parallel":     {Config{Policy: PolicyHold, Parallel: -1}, "Config.Parallel"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := New(dedup.Memory(1), tt.cfg)
			wantField(t, err, tt.field)
		})
	}
	_, err := New(nil, Config{Policy: PolicyHold})
	wantField(t, err, "store")
	_, err = New(struct{ dedup.Store }{dedup.Memory(1)}, Config{Policy: PolicyHold})
	wantField(t, err, "store")
}

// wantField insists on an InputError about a field, or on no error if field is empty.
func wantField(t *testing.T, err error, field string) {
	t.Helper()
	if field == "" {
		require.NoError(t, err)
		return
	}
	var input *dedup.InputError
	require.ErrorAs(t, err, &input)
	assert.Equal(t, field, input.Field, "%v", err)
}

// TestWait: the pause before a key is asked about again grows, and every process computes the same
// pause at every look.
func TestWait(t *testing.T) {
	cfg := Config{Policy: PolicyHold, Wait: time.Second, MaxWait: time.Minute}
	a, err := New(dedup.Memory(1), cfg)
	require.NoError(t, err)
	b, err := New(dedup.Memory(1), cfg)
	require.NoError(t, err)
	pauses := map[time.Duration]bool{}
	for n := range 50 {
		id := driver.ID{byte(n)}
		for asked, top := 1, time.Second; asked < 12; asked, top = asked+1,
			min(2*top, time.Minute) {
			pause := a.wait(id, asked)
			assert.GreaterOrEqual(t, pause, top/2, "after %d asks", asked)
			assert.LessOrEqual(t, pause, top, "after %d asks", asked)
			assert.Equal(t, pause, b.wait(id, asked), "after %d asks", asked)
			pauses[pause] = true
		}
	}
	assert.GreaterOrEqual(t, len(pauses), 300, "of 550: they are in step")
}

// rig is a store in a bubble, and the results of its resolvers.
type rig struct {
	t     *testing.T
	store dedup.Store
	d     *dedup.Deduper

	mu     sync.Mutex
	asked  map[string]int // by downstream key
	busy   int
	most   int // asked at a time
	alarms []string
	errs   []error
}

const lease, window = 10 * time.Second, time.Hour

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, store: dedup.Memory(1000), asked: map[string]int{}}
	var err error
	r.d, err = dedup.New(r.store, dedup.Config{Namespace: "n", Window: window, LeaseTTL: lease})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.d.Close(context.Background()) })
	return r
}

// uncertain makes n keys whose effects may have happened, and returns their downstream keys.
func (r *rig) uncertain(n int) (all []string) {
	r.t.Helper()
	for i := range n {
		_, err := dedup.Do(r.t.Context(), r.d, fmt.Sprintf("order %d", i),
			func(ctx context.Context) (string, error) {
				a, _ := dedup.FromContext(ctx)
				all = append(all, a.DownstreamKey("charge"))
				if err := dedup.MarkIrreversible(ctx); err != nil {
					return "", err
				}
				return "", errors.New("timeout")
			})
		require.Error(r.t, err)
	}
	return all
}

func (r *rig) resolver(edit func(*Config), answer dedup.Resolution) *Resolver {
	r.t.Helper()
	cfg := Config{
		Window: window,
		Ask: func(_ context.Context, u UncertainRecord) (dedup.Resolution, error) {
			r.mu.Lock()
			r.asked[u.ID.DownstreamKey("charge")]++
			r.busy++
			r.most = max(r.most, r.busy)
			r.mu.Unlock()
			time.Sleep(time.Second)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.busy--
			return answer, nil
		},
		Alarm:  func(_ UncertainRecord, why string) { r.alarms = append(r.alarms, why) },
		Failed: func(err error) { r.mu.Lock(); defer r.mu.Unlock(); r.errs = append(r.errs, err) },
	}
	edit(&cfg)
	res, err := New(r.store, cfg)
	require.NoError(r.t, err)
	return res
}

func (r *rig) pass(res *Resolver, want Resolved) {
	r.t.Helper()
	got, err := res.Pass(r.t.Context())
	require.NoError(r.t, err)
	assert.Equal(r.t, want, got)
}

func keep(*Config) {}

// TestEnds: the next delivery finds the answer of the downstream.
func TestEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		answer dedup.Resolution
		want   Resolved
		runs   int // of the effect, by the next delivery
		err    bool
	}{
		"happened":       {dedup.Happened([]byte("paid")), Resolved{Succeeded: 3}, 0, false},
		"failed":         {dedup.FailedForGood("declined"), Resolved{Failed: 3}, 0, true},
		"did not happen": {dedup.DidNotHappen(), Resolved{Released: 3}, 1, false},
		"not known":      {dedup.Resolution{}, Resolved{Unknown: 3}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				keys := r.uncertain(3)
				r.pass(r.resolver(keep, tt.answer), tt.want)
				for _, key := range keys {
					assert.Equal(t, 1, r.asked[key], "asked about %s", key)
				}
				assert.Len(t, r.asked, 3)
				runs := 0
				_, err := dedup.Do(t.Context(), r.d, "order 0",
					func(ctx context.Context) (string, error) {
						a, _ := dedup.FromContext(ctx)
						assert.Equal(t, 2, a.Number, "the attempt after the one in doubt")
						runs++
						return "ran", nil
					})
				assert.Equal(t, tt.runs, runs)
				assert.Equal(t, tt.err, err != nil, "%v", err)
				assert.Empty(t, r.errs)
			})
		})
	}
}

// TestManyResolvers: only one of many processes asks about a key at a time. If the key stays
// unknown, it is asked about again after a while, up to MaxAsks.
func TestManyResolvers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		keys := r.uncertain(4)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 5 {
			res := r.resolver(func(cfg *Config) {
				cfg.MaxAsks, cfg.AlarmAge = 3, 2*window
				cfg.Alarm = nil
			}, dedup.Resolution{})
			all.Go(func() { assert.ErrorIs(t, res.Run(ctx), context.Canceled) })
		}
		time.Sleep(window / 2)
		cancel()
		all.Wait()
		for _, key := range keys {
			assert.Equal(t, 3, r.asked[key], "asked about %s", key)
		}
		assert.LessOrEqual(t, r.most, 4, "asked at a time")
	})
}

// TestAlarms: an operator gets one alarm for a key that is old, or that nobody may ask about.
func TestAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.uncertain(2)
		held := r.resolver(func(cfg *Config) { cfg.Policy, cfg.Ask = PolicyHold, nil },
			dedup.Resolution{})
		r.pass(held, Resolved{Held: 2})
		r.pass(held, Resolved{Held: 2})
		assert.Equal(t, []string{"it is held", "it is held"}, r.alarms)
		r.alarms = nil
		old := r.resolver(func(cfg *Config) { cfg.AlarmAge = time.Minute }, dedup.DidNotHappen())
		time.Sleep(time.Minute)
		r.pass(old, Resolved{Released: 2})
		require.Len(t, r.alarms, 2)
		assert.Contains(t, r.alarms[0], "1m0s")
	})
}

// TestAlarmsOfManyProcesses: a key is not listed while another process asks about it. That does not
// raise a second alarm. Another attempt in doubt does.
func TestAlarmsOfManyProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.uncertain(1)
		rests := func(cfg *Config) {
			cfg.AlarmAge, cfg.Wait, cfg.MaxWait = time.Minute, time.Hour, time.Hour
		}
		slow := r.resolver(func(cfg *Config) {
			cfg.Alarm = nil
			cfg.Ask = func(context.Context, UncertainRecord) (dedup.Resolution, error) {
				time.Sleep(20 * time.Second)
				return dedup.Resolution{}, nil
			}
		}, dedup.Resolution{})
		watching := r.resolver(rests, dedup.Resolution{})
		time.Sleep(time.Minute)
		r.pass(watching, Resolved{Unknown: 1})
		for range 3 {
			time.Sleep(time.Minute)
			var asking sync.WaitGroup
			asking.Go(func() { _, _ = slow.Pass(t.Context()) })
			time.Sleep(time.Second)
			r.pass(watching, Resolved{})
			asking.Wait()
			r.pass(watching, Resolved{Waiting: 1})
		}
		assert.Len(t, r.alarms, 1)

		require.NoError(t, r.d.Forget(t.Context(), "order 0"))
		time.Sleep(time.Second)
		r.uncertain(1)
		time.Sleep(time.Minute)
		r.pass(watching, Resolved{Unknown: 1})
		assert.Len(t, r.alarms, 2)
	})
}

// small is a store that refuses results above 1 KiB.
type small struct{ driver.Resolvable }

func (s small) Finish(ctx context.Context, ends []driver.Finish) []driver.Answer {
	if len(ends[0].Result) > 1<<10 {
		return []driver.Answer{{Err: &driver.InputError{Field: "Result", Reason: "is too large"}}}
	}
	return s.Resolvable.Finish(ctx, ends)
}

// TestLongAnswers: an answer that is too long for the store also resolves its key.
func TestLongAnswers(t *testing.T) {
	long := strings.Repeat("ü", 1<<10)
	for name, tt := range map[string]struct {
		answer dedup.Resolution
		want   Resolved
		rec    driver.Record
	}{
		"result": {dedup.Happened([]byte(long)), Resolved{Succeeded: 1},
			driver.Record{State: driver.StateSucceeded, NoResult: true}},
		"failure": {dedup.FailedForGood(long), Resolved{Failed: 1},
			driver.Record{State: driver.StateFailed, Result: []byte(long[:1<<10])}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.uncertain(1)
				r.store = small{r.store.(driver.Resolvable)}
				r.pass(r.resolver(keep, tt.answer), tt.want)
				assert.Empty(t, r.errs)
				rec, err := r.d.Lookup(t.Context(), "order 0")
				require.NoError(t, err)
				assert.Equal(t, tt.rec, driver.Record{State: rec.State, Result: rec.Result,
					NoResult: rec.NoResult})
			})
		})
	}
}

// TestAskThatGoesWrong: an Ask that panics, fails, or returns after the key was lost, is an error
// and not an answer.
func TestAskThatGoesWrong(t *testing.T) {
	for name, ask := range map[string]func(context.Context) (dedup.Resolution, error){
		"panics": func(context.Context) (dedup.Resolution, error) { panic("boom") },
		"fails":  func(context.Context) (dedup.Resolution, error) { return dedup.DidNotHappen(), errors.New("down") },
		"is late to say that it did not happen": func(ctx context.Context) (dedup.Resolution, error) {
			<-ctx.Done()
			return dedup.DidNotHappen(), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.uncertain(1)
				res := r.resolver(func(cfg *Config) {
					cfg.Ask = func(ctx context.Context, _ UncertainRecord) (dedup.Resolution,
						error) {
						return ask(ctx)
					}
				}, dedup.Resolution{})
				r.pass(res, Resolved{Unknown: 1})
				assert.Len(t, r.errs, 1)
				_, err := dedup.Do(t.Context(), r.d, "order 0",
					func(context.Context) (string, error) { t.Error("it ran"); return "", nil })
				assert.ErrorIs(t, err, dedup.ErrUncertain)
			})
		})
	}
}

// TestKeepsTheKey: the key is kept while a question takes longer than the lease.
func TestKeepsTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.uncertain(1)
		res := r.resolver(func(cfg *Config) {
			cfg.Lease, cfg.Timeout = 3*time.Second, time.Minute
			cfg.Ask = func(context.Context, UncertainRecord) (dedup.Resolution, error) {
				time.Sleep(30 * time.Second)
				other := r.resolver(keep, dedup.Happened(nil))
				r.pass(other, Resolved{})
				return dedup.DidNotHappen(), nil
			}
		}, dedup.Resolution{})
		r.pass(res, Resolved{Released: 1})
		assert.Empty(t, r.errs)
	})
}

// TestRests: a key that stays unknown is left alone for a while, and each time for longer.
func TestRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		keys := r.uncertain(1)
		res := r.resolver(func(cfg *Config) { cfg.Wait = time.Minute }, dedup.Resolution{})
		r.pass(res, Resolved{Unknown: 1})
		for asked := 1; asked < 4; asked++ {
			r.pass(res, Resolved{Waiting: 1})
			time.Sleep(time.Minute << (asked - 1))
			r.pass(res, Resolved{Unknown: 1})
		}
		assert.Equal(t, 4, r.asked[keys[0]])
	})
}
