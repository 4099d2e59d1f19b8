package redisadapter_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisproxy"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// till is a store, and a counter in the slot of each key. The tested effect increments the counter.
type till struct {
	*testing.T
	client redis.UniversalClient
	prefix string
	store  *redisadapter.Store
	d      *dedup.Deduper
}

func newTill(t *testing.T, b redistest.Backend, edit func(*dedup.Config)) *till {
	t.Helper()
	s := &till{T: t, client: b.Client, prefix: b.Prefix, store: open(t, b)}
	s.d = s.deduper(edit)
	return s
}

func (s *till) deduper(edit func(*dedup.Config)) *dedup.Deduper {
	s.Helper()
	cfg := dedup.Config{Namespace: "till", Window: time.Hour, LeaseTTL: 20 * time.Second}
	if edit != nil {
		edit(&cfg)
	}
	d, err := dedup.New(s.store, cfg)
	must(s, err)
	return d
}

// counter is a key in the slot of another key's record.
func (s *till) counter(key string) string {
	s.Helper()
	id, err := driver.NewID("till", "", key)
	must(s, err)
	return s.prefix + "-count:{" + s.store.HashTag(id) + "}"
}

// incr is an effect that increments the counter of key.
func (s *till) incr(key string) redisadapter.Effect {
	name := s.counter(key)
	return func(_ redis.Cmdable, write redis.Pipeliner) error {
		write.Incr(s.Context(), name)
		write.PExpire(s.Context(), name, time.Hour)
		return nil
	}
}

func (s *till) wantCount(key string, want int) {
	s.Helper()
	n, err := s.client.Get(s.Context(), s.counter(key)).Int()
	require.False(s, err != nil && !errors.Is(err, redis.Nil), err)
	assert.Equal(s, want, n, "%s: %d effects, want %d", key, n, want)
}

func (s *till) wantState(key string, want driver.State) dedup.Record {
	s.Helper()
	rec, err := s.d.Lookup(s.Context(), key)
	must(s, err)
	assert.Equal(s, want, rec.State, "%s", key)
	return rec
}

func (s *till) claim(d *dedup.Deduper, key string, opts ...dedup.Option) *dedup.Claim {
	s.Helper()
	c, err := d.Claim(s.Context(), key, opts...)
	must(s, err)
	require.Equal(s, dedup.Acquired, c.Outcome, "%s", key)
	return c
}

func (s *till) atomic(c *dedup.Claim, effect redisadapter.Effect, watch ...string) error {
	return s.store.Atomic(s.Context(), s.d, dedup.Completion{Claim: c}, effect, watch...)
}

// eachTill runs test on every kind of Redis.
func eachTill(t *testing.T, test func(s *till)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, b redistest.Backend) { test(newTill(t, b, nil)) })
}

func TestAtomicOnce(t *testing.T) {
	eachTill(t, func(s *till) {
		for n, want := range []driver.Outcome{dedup.Acquired, dedup.Duplicate, dedup.Duplicate} {
			got, err := s.store.DoAtomic(s.Context(), s.d, dedup.Request{Key: "a"}, s.incr("a"))
			assert.NoError(s, err, "delivery %d: %v", n, got)
			assert.Equal(s, want, got, "delivery %d: %v, %v", n, got, err)
		}
		s.wantCount("a", 1)
		s.wantState("a", driver.StateSucceeded)
	})
}

// TestAtomicRecord: Atomic leaves the same record as Complete.
func TestAtomicRecord(t *testing.T) {
	eachTill(t, func(s *till) {
		origin := driver.Origin{Source: "topic", Partition: 3, Offset: 4}
		atomic := s.claim(s.d, "atomic", dedup.WithFingerprint([]byte("p")),
			func(r *dedup.Request) { r.Origin = origin })
		plain := s.claim(s.d, "plain", dedup.WithFingerprint([]byte("p")),
			func(r *dedup.Request) { r.Origin = origin })
		must(s, s.store.Atomic(s.Context(),
			s.d, dedup.Completion{Claim: atomic, Result: []byte("receipt")}, s.incr("atomic")))
		must(s, plain.Complete(s.Context(), []byte("receipt")))
		got, want := s.wantState("atomic", driver.StateSucceeded),
			s.wantState("plain", driver.StateSucceeded)
		assert.NotZero(s, got.Fence, "%+v", got)
		assert.Greater(s, got.Remaining, 59*time.Minute, "%+v", got)
		want.Fence, want.Age, want.Remaining = got.Fence, got.Age, got.Remaining
		assert.Equal(s, fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got),
			"\n%+v, and Complete leaves\n%+v", got, want)
		value, err := dedup.Do(s.Context(), s.d, "atomic", func(context.Context) (string, error) {
			return "again", nil
		})
		assert.NoError(s, err, "replayed %q", value)
		assert.Equal(s, "receipt", value, "replayed %q, %v", value, err)
		must(s, s.atomic(atomic, s.incr("atomic"))) // the claim has ended already
		s.wantCount("atomic", 1)
	})
}

// TestAtomicEffectError: nothing of the effect is written, and the caller still has the claim.
func TestAtomicEffectError(t *testing.T) {
	eachTill(t, func(s *till) {
		c, broken := s.claim(s.d, "a"), errors.New("no stock")
		err := s.atomic(c, func(read redis.Cmdable, write redis.Pipeliner) error {
			_ = s.incr("a")(read, write)
			return broken
		})
		assert.Same(s, broken, err, "it is returned as it is")
		s.wantCount("a", 0)
		s.wantState("a", driver.StateInProgress)
		must(s, s.atomic(c, s.incr("a")))
		s.wantCount("a", 1)

		fails := func(err error) redisadapter.Effect {
			return func(redis.Cmdable, redis.Pipeliner) error { return err }
		}
		_, err = s.store.DoAtomic(s.Context(), s.d, dedup.Request{Key: "b"}, fails(broken))
		assert.ErrorIs(s, err, broken)
		s.wantState("b", driver.StateReleased)
		for range 2 {
			_, err := s.store.DoAtomic(s.Context(), s.d, dedup.Request{Key: "b"},
				fails(dedup.Permanent(broken)))
			assert.True(s, dedup.IsPermanent(err), "%v", err)
			s.wantState("b", driver.StateFailed)
		}
	})
}

// TestEffectErrorIsNotTheServers: if an effect asks another system, and that one is down, the
// breaker of this server stays closed.
func TestEffectErrorIsNotTheServers(t *testing.T) {
	s := newTill(t, redistest.Open(t, "miniredis"), nil)
	// the error of another system that the effect has asked
	down := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	c := s.claim(s.d, "a")
	for range 8 {
		err := s.atomic(c, func(redis.Cmdable, redis.Pipeliner) error { return down })
		require.ErrorIs(t, err, down)
	}
	assert.False(t, s.store.Health().BreakerOpen, "the breaker is open")
}

// TestAtomicWatches: the effect is written only if the values that it has read are unchanged.
func TestAtomicWatches(t *testing.T) {
	eachTill(t, func(s *till) {
		ctx, name := s.Context(), s.counter("a")
		calls, meddles := 0, 3
		double := func(read redis.Cmdable, write redis.Pipeliner) error {
			n, err := read.Get(ctx, name).Int()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			if calls++; calls <= meddles {
				must(s, s.client.Set(ctx, name, 10*calls, time.Hour).Err()) // another client
			}
			write.Set(ctx, name, 2*n, time.Hour)
			return nil
		}
		must(s, s.atomic(s.claim(s.d, "a"), double, name))
		s.wantCount("a", 60)

		calls, meddles = 0, 1000
		c := s.claim(s.d, "b")
		name = s.counter("b")
		err := s.atomic(c, double, name)
		assert.ErrorIs(s, err, redisadapter.ErrConflict, "%v after %d calls", err, calls)
		assert.False(s, dedup.OutcomeUnknown(err), "%v after %d calls", err, calls)
		assert.Equal(s, 16, calls, "%v after %d calls", err, calls)
		s.wantState("b", driver.StateInProgress)
		must(s, c.Release(ctx))
	})
}

// TestAtomicRenewedMeanwhile: a renewal also changes the claim's key. The transaction succeeds
// anyway, with a second call of the effect.
func TestAtomicRenewedMeanwhile(t *testing.T) {
	eachTill(t, func(s *till) {
		c, calls := s.claim(s.d, "a"), 0
		must(s, s.atomic(c, func(read redis.Cmdable, write redis.Pipeliner) error {
			if calls++; calls == 1 {
				must(s, s.client.PExpire(s.Context(), s.record("a"), 50*time.Minute).Err())
			}
			return s.incr("a")(read, write)
		}))
		s.wantCount("a", 1)
		assert.Equal(s, 2, calls, "%d calls", calls)
	})
}

// TestAtomicLateOwner: another owner takes the key over before or while the effect is queued. Then
// the late owner has no effect, whatever the other one does with the key.
func TestAtomicLateOwner(t *testing.T) {
	eachTill(t, func(s *till) {
		takeOver := func(key string) *dedup.Claim {
			// The record has half of its hold left, so the lease has lapsed.
			must(s, s.client.PExpire(s.Context(), s.record(key), 30*time.Minute).Err())
			return s.claim(s.d, key)
		}
		for name, then := range map[string]func(*dedup.Claim) error{
			"held":     func(*dedup.Claim) error { return nil },
			"done":     func(c *dedup.Claim) error { return c.Complete(s.Context(), nil) },
			"failed":   func(c *dedup.Claim) error { return c.Fail(s.Context(), errors.New("x")) },
			"released": func(c *dedup.Claim) error { return c.Release(s.Context()) },
			"forgotten": func(c *dedup.Claim) error {
				return errors.Join(c.Release(s.Context()), s.d.Forget(s.Context(), c.Key))
			},
			"expired": func(c *dedup.Claim) error {
				return s.client.Del(s.Context(), s.record(c.Key)).Err()
			},
		} {
			late := s.claim(s.d, name)
			must(s, then(takeOver(name)))
			err := s.atomic(late, s.incr(name))
			assert.ErrorIs(s, err, dedup.ErrLeaseLost, "%s", name)
			s.wantCount(name, 0)

			name += " meanwhile"
			late = s.claim(s.d, name)
			err = s.atomic(late, func(read redis.Cmdable, write redis.Pipeliner) error {
				must(s, then(takeOver(name)))
				return s.incr(name)(read, write)
			})
			assert.ErrorIs(s, err, dedup.ErrLeaseLost, "%s", name)
			s.wantCount(name, 0)
		}
	})
}

// record is the key of a record.
func (s *till) record(key string) string {
	s.Helper()
	id, err := driver.NewID("till", "", key)
	must(s, err)
	return redisadapter.Key(s.store, id)
}

// TestAtomicLostReplies loses replies of every command of the transaction. The loss of EXEC's reply
// matters most: the effect has happened, and the client does not know. The next try finds it.
func TestAtomicLostReplies(t *testing.T) {
	proxy := redisproxy.Start(t, servertest.Redis(t))
	client := redistest.Client(t, &redis.Options{Addr: proxy.Addr()}) // default retries
	s := newTill(t, redistest.Backend{Client: client, Prefix: servertest.Prefix(t)}, nil)
	drop := func(command string, p float64, action redisproxy.Action) redisproxy.Rule {
		return redisproxy.Rule{Name: command, Command: command, Action: action,
			Probability: p, Seed: 5}
	}
	proxy.SetRules(
		drop("EXEC", 0.4, redisproxy.DropReply), drop("WATCH", 0.1, redisproxy.DropReply),
		drop("MULTI", 0.15, redisproxy.CutPipeline), drop("INCR", 0.1, redisproxy.DropRequest),
	)
	const keys = 60
	for n := range keys {
		key := fmt.Sprint("key-", n)
		must(t, s.atomic(s.claim(s.d, key), s.incr(key)))
	}
	stats := proxy.Stats()
	proxy.SetRules()
	for n := range keys {
		s.wantCount(fmt.Sprint("key-", n), 1)
		s.wantState(fmt.Sprint("key-", n), driver.StateSucceeded)
	}
	t.Logf("%v", stats.Fired)
	assert.GreaterOrEqual(t, stats.Fired["EXEC"], keys/3, "too few faults: %v", stats.Fired)
	assert.NotZero(t, stats.Fired["WATCH"], "too few faults: %v", stats.Fired)
	assert.NotZero(t, stats.Fired["INCR"], "too few faults: %v", stats.Fired)
	assert.NotZero(t, stats.Fired["MULTI"], "too few faults: %v", stats.Fired)
}

// TestAtomicKeepsItsTransaction: an effect cannot end the WATCH or the MULTI. Otherwise a lost
// lease would not be noticed.
func TestAtomicKeepsItsTransaction(t *testing.T) {
	eachTill(t, func(s *till) {
		ctx := s.Context()
		for name, effect := range map[string]redisadapter.Effect{
			"exec": func(_ redis.Cmdable, write redis.Pipeliner) error {
				write.Incr(ctx, s.counter("exec"))
				_, _ = write.Exec(ctx)
				return nil
			},
			"own": func(read redis.Cmdable, _ redis.Pipeliner) error {
				_, _ = read.TxPipelined(ctx, func(p redis.Pipeliner) error {
					return p.Incr(ctx, s.counter("own")).Err()
				})
				return nil
			},
			"unwatch": func(read redis.Cmdable, write redis.Pipeliner) error {
				pipe := read.Pipeline()
				pipe.Do(ctx, "unwatch")
				_, _ = pipe.Exec(ctx)
				return s.incr("unwatch")(read, write)
			},
			"queued": func(read redis.Cmdable, write redis.Pipeliner) error {
				_ = s.incr("queued")(read, write)
				return write.Do(ctx, "EXEC").Err()
			},
		} {
			wantInput(s.T, s.atomic(s.claim(s.d, name), effect), "Effect")
			s.wantCount(name, 0)
			s.wantState(name, driver.StateInProgress)
		}
	})
}

// TestAtomicPartial: a command of the effect fails in EXEC, and Redis does not undo the others. The
// key is recorded as done, and the error says so.
func TestAtomicPartial(t *testing.T) {
	eachTill(t, func(s *till) {
		list := s.prefix + "-list:{" + s.tag("a") + "}"
		must(s, s.client.RPush(s.Context(), list, "x").Err())
		must(s, s.client.Expire(s.Context(), list, time.Hour).Err())
		got, err := s.store.DoAtomic(s.Context(), s.d, dedup.Request{Key: "a"},
			func(read redis.Cmdable, write redis.Pipeliner) error {
				write.Incr(s.Context(), list)
				write.Get(s.Context(), s.prefix+"-none:{"+s.tag("a")+"}") // absent: no error
				return s.incr("a")(read, write)
			})
		assert.ErrorIs(s, err, redisadapter.ErrPartial, "%v, %v", got, err)
		assert.True(s, redis.HasErrorPrefix(err, "WRONGTYPE"), "%v, %v", got, err)
		assert.Equal(s, dedup.Acquired, got, "%v, %v", got, err)
		s.wantCount("a", 1)
		s.wantState("a", driver.StateSucceeded)
		_, err = s.store.DoAtomic(s.Context(), s.d, dedup.Request{Key: "b"},
			func(_ redis.Cmdable, write redis.Pipeliner) error {
				return write.Get(s.Context(), s.counter("b")).Err()
			})
		assert.NoError(s, err, "an effect that finds nothing")
	})
}

func (s *till) tag(key string) string {
	s.Helper()
	id, err := driver.NewID("till", "", key)
	must(s, err)
	return s.store.HashTag(id)
}

// TestAtomicRefused: the server refuses to queue a command, so nothing is executed.
func TestAtomicRefused(t *testing.T) {
	eachTill(t, func(s *till) {
		if strings.HasPrefix(s.Name(), "TestAtomicRefused/miniredis") {
			return // it executes the rest of the transaction
		}
		c := s.claim(s.d, "a")
		err := s.atomic(c, func(read redis.Cmdable, write redis.Pipeliner) error {
			write.Do(s.Context(), "nosuchcommand", s.counter("a"))
			return s.incr("a")(read, write)
		})
		assert.Error(s, err)
		assert.False(s, dedup.OutcomeUnknown(err), "%v", err)
		assert.True(s, redis.HasErrorPrefix(err, "unknown command"), "%v", err)
		s.wantCount("a", 0)
		s.wantState("a", driver.StateInProgress)
		must(s, c.Release(s.Context()))
	})
}

// TestAtomicOtherSlot: a key in another slot is the usual mistake on a Cluster. The error names it.
func TestAtomicOtherSlot(t *testing.T) {
	s := newTill(t, redistest.Open(t, "cluster"), nil)
	wantInput(t, s.atomic(s.claim(s.d, "watched"), s.incr("watched"), s.counter("b")), "Watch")
	for n := range 20 {
		key := fmt.Sprint("a-", n)
		err := s.atomic(s.claim(s.d, key), func(read redis.Cmdable, write redis.Pipeliner) error {
			_ = s.incr(key)(read, write)
			return s.incr("elsewhere")(read, write)
		})
		assert.Error(t, err)
		assert.False(t, dedup.OutcomeUnknown(err), "%v", err)
		s.wantCount(key, 0)
	}
	s.wantCount("elsewhere", 0)
}

// TestAtomicInAnotherStore: a claim of another store is refused, not recorded.
func TestAtomicInAnotherStore(t *testing.T) {
	s := newTill(t, redistest.Open(t, "miniredis"), nil)
	d, err := dedup.New(dedup.Memory(10),
		dedup.Config{Namespace: "till", Window: time.Hour, LeaseTTL: time.Minute})
	must(t, err)
	c := s.claim(d, "a")
	wantInput(t, s.store.Atomic(t.Context(), d, dedup.Completion{Claim: c}, s.incr("a")),
		"Completion.With")
	s.wantCount("a", 0)
	must(t, c.Release(t.Context()))

	other, err := redisadapter.New(t.Context(), s.client,
		redisadapter.Options{Prefix: s.prefix + "2"})
	must(t, err)
	c = s.claim(s.d, "a")
	wantInput(t, other.Atomic(t.Context(), s.d, dedup.Completion{Claim: c}, s.incr("a")),
		"Completion.With")
	s.wantCount("a", 0)
	must(t, c.Release(t.Context()))

	wantInput(t, s.atomic(nil, s.incr("a")), "Completion.Claim")
	wantInput(t, s.atomic(s.claim(s.d, "b"), nil), "Effect")
	wantInput(t, s.atomic(s.claim(s.d, "c"), s.incr("c"), ""), "Watch")
	wantInput(t, s.store.Atomic(t.Context(), nil, dedup.Completion{Claim: c}, s.incr("a")),
		"Deduper")
	err = s.store.Atomic(t.Context(), s.d,
		dedup.Completion{Claim: s.claim(s.d, "d"), Err: errors.New("x")}, s.incr("d"))
	wantInput(t, err, "Completion.Err")
}

// TestAtomicObserved: in Observe mode every delivery runs its effect, and each effect counts.
func TestAtomicObserved(t *testing.T) {
	eachTill(t, func(s *till) {
		watcher := s.deduper(func(c *dedup.Config) { c.Mode = dedup.Observe })
		for n := range 3 {
			got, err := s.store.DoAtomic(s.Context(), watcher, dedup.Request{Key: "a"},
				s.incr("a"), s.counter("a"))
			assert.NoError(s, err, "delivery %d: %v", n, got)
			assert.Equal(s, dedup.Acquired, got, "delivery %d: %v, %v", n, got, err)
			s.wantCount("a", n+1)
		}
	})
}

// TestAtomicObservedOutage: in Observe mode a record that could not be written is not an error. But
// an effect that was not done, or may not have been, is not a success in any mode.
func TestAtomicObservedOutage(t *testing.T) {
	observe := func(c *dedup.Config) { c.Mode = dedup.Observe }
	effect := func(_ redis.Cmdable, write redis.Pipeliner) error {
		return write.Incr(context.Background(), "effect").Err()
	}
	t.Run("the caller has left", func(t *testing.T) {
		s := newTill(t, redistest.Open(t, "miniredis"), observe)
		c := s.claim(s.d, "a")
		ctx, leave := context.WithCancel(t.Context())
		leave()
		err := s.store.Atomic(ctx, s.d, dedup.Completion{Claim: c}, effect)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Zero(t, s.client.Exists(t.Context(), "effect").Val(), "error %v", err)
	})
	t.Run("the server is down", func(t *testing.T) {
		mini, _ := redistest.Mini(t)
		client := redistest.Client(t,
			&redis.Options{Addr: mini.Addr(), MaxRetries: -1, DialerRetries: 1})
		store := open(t, redistest.Backend{Client: client, Prefix: "ow"})
		d, err := dedup.New(store, dedup.Config{Namespace: "till", Window: time.Hour,
			LeaseTTL: time.Minute, Mode: dedup.Observe})
		must(t, err)
		c, err := d.Claim(t.Context(), "a")
		must(t, err)
		mini.Close()
		err = store.Atomic(t.Context(), d, dedup.Completion{Claim: c}, effect)
		assert.True(t, dedup.OutcomeUnknown(err), "error %v", err)
	})
}

// TestAtomicPanic: a panic of the effect releases the claim and reaches the caller.
func TestAtomicPanic(t *testing.T) {
	eachTill(t, func(s *till) {
		func() {
			defer func() {
				assert.NotNil(s, recover(), "the panic is gone")
			}()
			_, _ = s.store.DoAtomic(s.Context(), s.d, dedup.Request{Key: "a"},
				func(redis.Cmdable, redis.Pipeliner) error { panic("no") })
		}()
		s.wantState("a", driver.StateReleased)
		_, err := s.store.DoAtomic(s.Context(), s.d, dedup.Request{Key: "a"}, s.incr("a"))
		must(s, err)
		s.wantCount("a", 1)
	})
}

// until polls.
func until(t testing.TB, yes func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !yes() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("not within a minute")
		}
	}
}
